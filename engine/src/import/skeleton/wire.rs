//! The wire format of protobuf, read through a small buffer.

use crate::error::Error;
use crate::graph::Data;
use crate::import::staging::Staging;
use std::io;
use std::ops::Range;

/// Why a scan ended.
#[derive(Debug, thiserror::Error)]
pub(in crate::import) enum ScanError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The bytes are no message.
    #[error("{what} at byte {at}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where in the file.
        at: usize,
    },
    /// There is no memory for what would be copied.
    #[error(transparent)]
    Memory(Error),
}

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Eight,
    Bytes,
    Four,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) wire: Wire,
    /// The value without tag and length.
    pub(super) value: Range<usize>,
}

/// Reads here and there in a file, in windows of a fixed size.
pub(super) struct Reader<'a> {
    data: &'a Data,
    staging: &'a Staging,
    window: Vec<u8>,
    start: usize,
}

impl<'a> Reader<'a> {
    const WINDOW_BYTES: usize = 64 << 10;

    pub(super) fn new(data: &'a Data, staging: &'a Staging) -> Reader<'a> {
        Reader { data, staging, window: vec![], start: 0 }
    }

    /// The file.
    pub(super) fn data(&self) -> &'a Data {
        self.data
    }

    /// The field at `at` of a message that ends at `end`.
    ///
    /// # Errors
    /// It is cut short, or is none of the four kinds.
    pub(super) fn field(&mut self, at: usize, end: usize) -> Result<Field, ScanError> {
        let (tag, after) = self.varint(at, end)?;
        let malformed = |what| ScanError::Malformed { what, at };
        let (wire, value) = match tag & 7 {
            0 => (Wire::Varint, after..self.varint(after, end)?.1),
            1 => (Wire::Eight, after..after.saturating_add(8)),
            2 => {
                let (len, start) = self.varint(after, end)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                (Wire::Bytes, start..start.saturating_add(len))
            }
            5 => (Wire::Four, after..after.saturating_add(4)),
            _ => return Err(malformed("a field of an unknown kind")),
        };
        if tag >> 3 == 0 || tag > u64::from(u32::MAX) {
            return Err(malformed("a field without a number"));
        }
        if value.end > end {
            return Err(malformed("a field that reaches past its message's end"));
        }
        Ok(Field { number: tag >> 3, wire, value })
    }

    /// The numbers of a packed field, or the one of a plain field.
    ///
    /// # Errors
    /// The last is cut short.
    pub(super) fn varints(&mut self, range: Range<usize>) -> Result<Vec<u64>, ScanError> {
        let (mut numbers, mut at) = (vec![], range.start);
        while at < range.end {
            let (number, after) = self.varint(at, range.end)?;
            numbers.push(number);
            at = after;
        }
        Ok(numbers)
    }

    /// Appends bytes of the file to `to`.
    ///
    /// # Errors
    /// The file cannot be read, or there is no memory.
    pub(super) fn copy(&mut self, range: Range<usize>, to: &mut Vec<u8>) -> Result<(), ScanError> {
        // What is copied is copied once more into the message around it, and then decoded and parsed.
        self.staging.claim(4 * range.len() as u64).map_err(ScanError::Memory)?;
        let known = self.start..self.start + self.window.len();
        if known.start <= range.start && range.end <= known.end {
            to.extend_from_slice(&self.window[range.start - known.start..range.end - known.start]);
            return Ok(());
        }
        let old = to.len();
        to.resize(old + range.len(), 0);
        Ok(self.data.read(range.start, &mut to[old..])?)
    }

    /// A number of up to 64 bits, seven a byte, and where it ends.
    fn varint(&mut self, at: usize, end: usize) -> Result<(u64, usize), ScanError> {
        let mut number = 0u64;
        for place in 0..10 {
            let at = at.saturating_add(place);
            if at >= end {
                return Err(ScanError::Malformed { what: "a number that is cut short", at });
            }
            let byte = self.byte(at)?;
            number |= u64::from(byte & 0x7f) << (7 * place as u32);
            if byte & 0x80 == 0 {
                return Ok((number, at + 1));
            }
        }
        Err(ScanError::Malformed { what: "a number of more than 64 bits", at })
    }

    fn byte(&mut self, at: usize) -> Result<u8, ScanError> {
        let known = at.checked_sub(self.start).and_then(|offset| self.window.get(offset).copied());
        if let Some(byte) = known {
            return Ok(byte);
        }
        let len = Reader::WINDOW_BYTES.min(self.data.len().saturating_sub(at));
        self.window.clear();
        self.window.resize(len, 0);
        self.start = at;
        if let Err(error) = self.data.read(at, &mut self.window) {
            self.window.clear();
            return Err(error.into());
        }
        match self.window.first() {
            Some(byte) => Ok(*byte),
            None => Err(ScanError::Malformed { what: "the end of the file", at }),
        }
    }
}

/// Appends a number, seven bits a byte.
pub(super) fn put_varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}
