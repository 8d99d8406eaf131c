//! TLS by rustls, with a certificate that is read again when its files change. Connections that are open keep the one
//! that they were made with.

use super::watched::Watched;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

/// Longer files were not meant to be certificates or keys.
const MOST_BYTES: u64 = 1 << 20;

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {} (server.{key}): {error}", file.display())]
    Unreadable { file: PathBuf, key: &'static str, error: io::Error },
    #[error("{} (server.{key}) holds no {what} in PEM form: {error}", file.display())]
    NotPem { file: PathBuf, key: &'static str, what: &'static str, error: pem::Error },
    #[error("server.tls_cert and server.tls_key do not go together: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The server's side of TLS.
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    files: Mutex<Files>,
}

/// The certificate that new connections are shown.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

struct Files {
    cert: Watched,
    key: Watched,
    /// Whether they were found changed at the last look: they are read at the next, when both have been written.
    changed: bool,
}

impl Tls {
    /// TLS with the chain and the key in these PEM files.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub(crate) fn open(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        let mut files = Files { cert: Watched::new(cert), key: Watched::new(key), changed: false };
        let shown = Arc::new(Shown(RwLock::new(Arc::new(files.read()?))));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), shown, files: Mutex::new(files) })
    }

    pub(in crate::http) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Reads the files again if they have changed; where that fails the certificate stays what it was.
    pub(crate) fn look(&self) {
        let mut files = self.files();
        let changed = files.cert.changed() || files.key.changed();
        if !changed || !std::mem::replace(&mut files.changed, changed) {
            return;
        }
        files.changed = false;
        match files.read() {
            Ok(read) => {
                *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                let file = files.cert.path().display();
                tracing::info!(%file, "new connections are shown the new certificate");
            }
            Err(error) => tracing::error!(%error, "the certificate stays what it was"),
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn read(&mut self) -> Result<CertifiedKey, TlsError> {
        let text = |file: &mut Watched, key| {
            let text = file.read(MOST_BYTES);
            text.map_err(|error| TlsError::Unreadable { file: file.path().into(), key, error })
        };
        // Both are looked at before either is judged, so that a failure is told once.
        let (cert, key) = (text(&mut self.cert, "tls_cert"), text(&mut self.key, "tls_key"));
        let (cert, key) = (cert?, key?);
        let (cert_file, key_file) = (self.cert.path(), self.key.path());
        let not_pem =
            |file: &Path, key, what, error| TlsError::NotPem { file: file.into(), key, what, error };
        let chain = CertificateDer::pem_slice_iter(&cert).collect::<Result<Vec<_>, _>>();
        let chain =
            chain.and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) });
        let chain = chain.map_err(|error| not_pem(cert_file, "tls_cert", "certificate", error))?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let key =
            key.map_err(|error| not_pem(key_file, "tls_key", "private key without a passphrase", error))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        self.key.warn_if_open_to_all("server.tls_key");
        Ok(certified)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}
