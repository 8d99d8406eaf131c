//! The token that admin calls must bring: the text of a file, read again when the file changes.

use super::watched::Watched;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};
use subtle::ConstantTimeEq;

/// A longer file was not meant to be a token.
const MOST_BYTES: u64 = 4096;

/// What a request's `Authorization` begins with.
const SCHEME: &[u8] = b"Bearer ";

/// The admin token. It has no `Debug`, so that no log can come to hold it.
pub(crate) struct AdminToken {
    file: Mutex<Watched>,
    /// `None` while the file holds no token: then no call is an admin's.
    token: RwLock<Option<Vec<u8>>>,
}

/// What is to become of an admin call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It brings the token.
    Admin,
    /// It brings none.
    Missing,
    /// It brings another.
    Wrong,
    /// There is none that it could bring.
    Shut,
}

impl AdminToken {
    /// The token in this file.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or holds what no header can carry.
    pub(crate) fn open(file: &Path) -> io::Result<AdminToken> {
        let mut file = Watched::new(file);
        let token = read(&mut file)?;
        Ok(AdminToken { file: Mutex::new(file), token: RwLock::new(Some(token)) })
    }

    /// What a request with this `Authorization` may do.
    pub(crate) fn judge(&self, authorization: Option<&[u8]>) -> Verdict {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = &*token else { return Verdict::Shut };
        let Some(brought) = authorization else { return Verdict::Missing };
        // The scheme's case is the client's choice (RFC 9110, 11.1). How long a comparison takes tells the token's
        // length at most.
        let scheme = brought.get(..SCHEME.len()).filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let same = scheme.is_some_and(|_| bool::from(brought[SCHEME.len()..].ct_eq(token)));
        if same { Verdict::Admin } else { Verdict::Wrong }
    }

    /// Reads the file again if it has changed. A file without a token shuts admin calls: to empty it takes the right
    /// from everyone.
    pub(crate) fn look(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if !file.changed() {
            return;
        }
        let token = read(&mut file);
        let path = file.path().display();
        match &token {
            Ok(_) => tracing::info!(file = %path, "the admin token has been read again"),
            Err(error) => {
                tracing::error!(file = %path, %error, "no admin token (server.admin_token_file): no admin call is let in");
            }
        }
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token.ok();
    }
}

/// The file's text without the space around it.
fn read(file: &mut Watched) -> io::Result<Vec<u8>> {
    let text = file.read(MOST_BYTES)?;
    let token = text.trim_ascii();
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if token.is_empty() {
        return refused("it is empty");
    }
    if !token.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return refused("it holds more than one line of printable ASCII, which no header can carry");
    }
    file.warn_if_open_to_all("server.admin_token_file");
    Ok(token.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use temp_dir::TempDir;

    fn opened(text: &str) -> (TempDir, io::Result<AdminToken>) {
        let dir = TempDir::new().unwrap();
        let file = dir.child("token");
        fs::write(&file, text).unwrap();
        (dir, AdminToken::open(&file))
    }

    #[test]
    fn only_the_whole_token_under_the_right_scheme_is_an_admins() {
        let (_dir, token) = opened(" open sesame\n");
        let token = token.unwrap();
        assert_eq!(token.judge(Some(b"Bearer open sesame")), Verdict::Admin);
        assert_eq!(token.judge(Some(b"bearer open sesame")), Verdict::Admin);
        assert_eq!(token.judge(None), Verdict::Missing);
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer open",
            "Bearer open sesame2",
            "Basic open sesame",
            "open sesame",
        ] {
            assert_eq!(token.judge(Some(wrong.as_bytes())), Verdict::Wrong, "{wrong}");
        }
    }

    #[test]
    fn what_can_be_no_token_is_refused() {
        let long = "a".repeat(5000);
        for (text, why) in
            [("\n \n", "empty"), ("a\nb", "one line"), ("gr\u{fc}n", "printable"), (&long, "5000 bytes")]
        {
            let error = opened(text).1.err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(AdminToken::open(Path::new("nowhere/token")).is_err());
    }

    #[test]
    fn another_token_in_the_file_takes_the_place_of_the_old_one_and_none_shuts_the_door() {
        let (dir, token) = opened("first");
        let token = token.unwrap();
        fs::write(dir.child("token"), "the second").unwrap();
        assert_eq!(token.judge(Some(b"Bearer first")), Verdict::Admin, "not looked at yet");
        token.look();
        assert_eq!(token.judge(Some(b"Bearer first")), Verdict::Wrong);
        assert_eq!(token.judge(Some(b"Bearer the second")), Verdict::Admin);
        fs::remove_file(dir.child("token")).unwrap();
        token.look();
        assert_eq!(token.judge(Some(b"Bearer the second")), Verdict::Shut);
        fs::write(dir.child("token"), "third").unwrap();
        token.look();
        assert_eq!(token.judge(Some(b"Bearer third")), Verdict::Admin);
    }
}
