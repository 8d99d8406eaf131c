//! The kinds of value that a key can take, each with one text that says what is expected.

use bytesize::ByteSize;
use clap::ValueEnum;
use serde::de::{self, Deserializer, SeqAccess, Unexpected, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than anything here can mean to wait, and short enough to be added to any clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

const SIZE: &str = "a size such as \"2GiB\"";
const SIZE_ABOVE_ZERO: &str = "a size above zero such as \"2GiB\"";
const DURATION: &str = "a duration of at most a year such as \"30s\"";
const DURATION_ABOVE_ZERO: &str = "a duration from 1ms to a year such as \"30s\"";

type Convert<From, T> = Option<Box<dyn FnOnce(From) -> Option<T>>>;

type ConvertText<T> = Option<Box<dyn FnOnce(&str) -> Option<T>>>;

/// Reads a value that may be written in several forms; a form that was not named is refused.
pub(crate) struct Reader<T> {
    expected: Cow<'static, str>,
    text: ConvertText<T>,
    integer: Convert<u64, T>,
    float: Convert<f64, T>,
    flag: Convert<bool, T>,
    list: Convert<Vec<String>, T>,
}

impl<T> Reader<T> {
    /// `expected` completes the sentence "expected …, got …".
    pub(crate) fn new(expected: impl Into<Cow<'static, str>>) -> Self {
        Self { expected: expected.into(), text: None, integer: None, float: None, flag: None, list: None }
    }

    /// Takes a string for which `convert` has a value.
    pub(crate) fn text(mut self, convert: impl FnOnce(&str) -> Option<T> + 'static) -> Self {
        self.text = Some(Box::new(convert));
        self
    }

    /// Takes a whole number from 0 for which `convert` has a value.
    pub(crate) fn integer(mut self, convert: impl FnOnce(u64) -> Option<T> + 'static) -> Self {
        self.integer = Some(Box::new(convert));
        self
    }

    /// Takes a number that is written with a point for which `convert` has a value.
    pub(crate) fn float(mut self, convert: impl FnOnce(f64) -> Option<T> + 'static) -> Self {
        self.float = Some(Box::new(convert));
        self
    }

    /// Takes `true` or `false` for which `convert` has a value.
    pub(crate) fn flag(mut self, convert: impl FnOnce(bool) -> Option<T> + 'static) -> Self {
        self.flag = Some(Box::new(convert));
        self
    }

    /// Takes an array of strings for which `convert` has a value.
    pub(crate) fn list(mut self, convert: impl FnOnce(Vec<String>) -> Option<T> + 'static) -> Self {
        self.list = Some(Box::new(convert));
        self
    }

    /// Reads the value.
    ///
    /// # Errors
    /// What was expected and what came.
    pub(crate) fn read<'de, D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let value = self.text.and_then(|convert| convert(text));
        value.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &&*self.expected))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let value = self.integer.and_then(|convert| convert(number));
        value.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &&*self.expected))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        let value = self.float.and_then(|convert| convert(number));
        value.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &&*self.expected))
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<T, E> {
        let value = self.flag.and_then(|convert| convert(flag));
        value.ok_or_else(|| E::invalid_value(Unexpected::Bool(flag), &&*self.expected))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let unexpected = |expected: &str| de::Error::invalid_type(Unexpected::Seq, &expected);
        let Some(convert) = self.list else { return Err(unexpected(&self.expected)) };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        convert(items).ok_or_else(|| unexpected(&self.expected))
    }
}

/// Bytes from a text such as `2GiB`, `1.5 GB` or `1048576`.
///
/// # Errors
/// The sentence for the user.
pub(crate) fn parse_size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| format!("expected a size such as 2GiB, got `{text}`"))
}

/// A duration from a text such as `30s` or `1m 30s`.
///
/// # Errors
/// The sentence for the user.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("expected a duration of at most a year such as 30s, got `{text}`")),
    }
}

// Each function below reads into `O`, so that one function serves a key `T` and a key `Option<T>`.

/// A size.
pub(crate) fn size<'de, D: Deserializer<'de>, O: From<ByteSize>>(from: D) -> Result<O, D::Error> {
    let size = |bytes| Some(ByteSize::b(bytes));
    Reader::new(SIZE).text(|text| parse_size(text).ok()).integer(size).read(from).map(O::from)
}

/// A size of at least one byte.
pub(crate) fn size_above_zero<'de, D: Deserializer<'de>, O: From<ByteSize>>(from: D) -> Result<O, D::Error> {
    let above_zero = |size: &ByteSize| size.as_u64() > 0;
    Reader::new(SIZE_ABOVE_ZERO)
        .text(move |text| parse_size(text).ok().filter(above_zero))
        .integer(move |bytes| Some(ByteSize::b(bytes)).filter(above_zero))
        .read(from)
        .map(O::from)
}

/// A size of a few pages, within what the HTTP library can hold of a head.
pub(crate) fn header_size<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    let fits = |size: &ByteSize| (1 << 10..=256 << 10).contains(&size.as_u64());
    Reader::new("a size from \"1KiB\" to \"256KiB\"")
        .text(move |text| parse_size(text).ok().filter(fits))
        .integer(move |bytes| Some(ByteSize::b(bytes)).filter(fits))
        .read(from)
}

/// A duration.
pub(crate) fn duration<'de, D: Deserializer<'de>, O: From<Duration>>(from: D) -> Result<O, D::Error> {
    Reader::new(DURATION).text(|text| parse_duration(text).ok()).read(from).map(O::from)
}

/// A duration of at least a millisecond.
pub(crate) fn duration_above_zero<'de, D: Deserializer<'de>, O: From<Duration>>(
    from: D,
) -> Result<O, D::Error> {
    let above_zero = |duration: &Duration| *duration >= Duration::from_millis(1);
    Reader::new(DURATION_ABOVE_ZERO)
        .text(move |text| parse_duration(text).ok().filter(above_zero))
        .read(from)
        .map(O::from)
}

/// A whole number from `MIN` to `MAX`.
pub(crate) fn count<'de, D, O, const MIN: usize, const MAX: usize>(from: D) -> Result<O, D::Error>
where
    D: Deserializer<'de>,
    O: From<usize>,
{
    Reader::new(format!("a whole number from {MIN} to {MAX}"))
        .integer(|number| usize::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number)))
        .read(from)
        .map(O::from)
}

/// A part of a whole.
pub(crate) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Reader::new("a number from 0 to 1 such as 0.25")
        .integer(|number| (number <= 1).then_some(number as f64))
        .float(|number| (0.0..=1.0).contains(&number).then_some(number))
        .read(from)
}

/// A path that is not empty.
pub(crate) fn path<'de, D: Deserializer<'de>, O: From<PathBuf>>(from: D) -> Result<O, D::Error> {
    Reader::new("a path").text(|text| (!text.is_empty()).then(|| PathBuf::from(text))).read(from).map(O::from)
}

/// An address with a port.
pub(crate) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    Reader::new("an address with a port such as \"127.0.0.1:8000\"").text(|text| text.parse().ok()).read(from)
}

/// One of the names of an enum, as the command line spells them too.
pub(crate) fn choice<'de, D: Deserializer<'de>, T: ValueEnum>(from: D) -> Result<T, D::Error> {
    let name = |variant: &T| variant.to_possible_value().map(|value| format!("\"{}\"", value.get_name()));
    let names: Vec<_> = T::value_variants().iter().filter_map(name).collect();
    Reader::new(format!("one of {}", names.join(", "))).text(|text| T::from_str(text, false).ok()).read(from)
}
