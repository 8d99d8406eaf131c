//! Walks the text of a JSON array without building a tree.

/// One piece of an array's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// `[`
    Open,
    /// `]`
    Close,
    /// A number, true, false, null, or a string with its quotes.
    Scalar(&'a str),
    /// An object, which no tensor has; nothing comes after it.
    Object,
}

/// The tokens of a text that a JSON parser has already accepted; of any other text some tokens, and no panic.
pub(super) struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`.
    pub(super) fn new(text: &'a str) -> Tokens<'a> {
        Tokens { rest: text }
    }

    fn take(&mut self, from: usize, to: usize) -> Option<&'a str> {
        let token = self.rest.get(from..to)?;
        self.rest = self.rest.get(to..)?;
        Some(token)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    #[inline]
    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.rest.as_bytes();
        let start = bytes.iter().position(|byte| !is_gap(*byte))?;
        match bytes.get(start)? {
            b'[' => self.take(start, start + 1).map(|_| Token::Open),
            b']' => self.take(start, start + 1).map(|_| Token::Close),
            b'"' => {
                let end = string_end(self.rest, start + 1)?;
                self.take(start, end).map(Token::Scalar)
            }
            b'{' => self.take(start, self.rest.len()).map(|_| Token::Object),
            _ => {
                let token = bytes.get(start..)?;
                let length = token.iter().position(|byte| is_gap(*byte) || *byte == b']');
                let end = length.map_or(self.rest.len(), |length| start + length);
                self.take(start, end).map(Token::Scalar)
            }
        }
    }
}

/// What stands between the entries of an array.
fn is_gap(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',')
}

/// Where the string ends whose first character after the quote is at `from`.
fn string_end(text: &str, from: usize) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}
