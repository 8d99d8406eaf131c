//! Which keys exist and which environment variable sets each.

use super::{Batching, Cache, Device, Lanes, Log, Memory, Models, Server};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "PLIMSOLL_";

/// The variable that sets this key.
pub(super) fn variable_name(section: &str, key: &str) -> String {
    format!("{PREFIX}{section}__{key}").to_uppercase()
}

/// Every section with its keys.
pub(super) fn keys() -> [(&'static str, &'static [&'static str]); 8] {
    [
        ("server", fields::<Server>()),
        ("device", fields::<Device>()),
        ("memory", fields::<Memory>()),
        ("lanes", fields::<Lanes>()),
        ("models", fields::<Models>()),
        ("batching", fields::<Batching>()),
        ("cache", fields::<Cache>()),
        ("log", fields::<Log>()),
    ]
}

/// The names of a struct's fields, as its `Deserialize` announces them.
pub(super) fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asking) {
        Err(Fields(fields)) => fields,
        Ok(_) => &[],
    }
}

/// A deserializer that holds nothing and answers with what it was asked for.
struct Asking;

#[derive(Debug)]
struct Fields(&'static [&'static str]);

impl<'de> Deserializer<'de> for Asking {
    type Error = Fields;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(fields))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Fields> {
        Err(Fields(&[]))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

impl std::error::Error for Fields {}

impl Error for Fields {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self(&[])
    }
}
