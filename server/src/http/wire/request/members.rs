//! Picks the members of JSON objects that matter, as borrowed text, and skips the others.

use super::error::Problem;
use crate::http::wire::text::json_error;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The text of each sought member, `None` where it is absent or null.
pub(super) type Found<'de, const N: usize> = [Option<&'de RawValue>; N];

/// Finds these members in a JSON object.
#[derive(Clone, Copy)]
pub(super) struct Members<const N: usize> {
    /// The object's place in a sentence, such as "an input".
    pub(super) what: &'static str,
    pub(super) names: [&'static str; N],
}

/// Finds these members in every object of a JSON array of at most `limit` objects.
pub(super) struct Entries<const N: usize> {
    pub(super) list: &'static str,
    pub(super) each: Members<N>,
    pub(super) limit: usize,
}

/// The outermost object of an inference request.
pub(super) struct Head<'de, const I: usize, const O: usize> {
    pub(super) id: Option<&'de RawValue>,
    pub(super) parameters: Option<&'de RawValue>,
    pub(super) inputs: Option<Vec<Found<'de, I>>>,
    pub(super) outputs: Option<Vec<Found<'de, O>>>,
}

/// Reads a [`Head`], given what to find in its two lists.
pub(super) struct HeadSeed<const I: usize, const O: usize> {
    pub(super) inputs: Entries<I>,
    pub(super) outputs: Entries<O>,
}

/// Parses `text` as exactly one value.
pub(super) fn parse<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    seed: S,
) -> Result<S::Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads the object that a member holds.
pub(super) fn object<'de, const N: usize>(
    member: &'static str,
    raw: &'de RawValue,
    names: [&'static str; N],
) -> Result<Found<'de, N>, Problem> {
    parse(raw.get(), Members { what: "an object", names })
        .map_err(|_| Problem::kind(member, "an object without repeated members", raw.get()))
}

/// Reads a string member, borrowed where it has no escapes.
pub(super) fn string<'de>(member: &'static str, raw: &'de RawValue) -> Result<Cow<'de, str>, Problem> {
    unquote(raw.get()).ok_or_else(|| Problem::kind(member, "a string", raw.get()))
}

/// Reads a non-negative integer member.
pub(super) fn unsigned(member: &'static str, raw: &RawValue) -> Result<u64, Problem> {
    raw.get().parse().map_err(|_| Problem::kind(member, "a non-negative integer", raw.get()))
}

/// Reads a boolean member.
pub(super) fn boolean(member: &'static str, raw: &RawValue) -> Result<bool, Problem> {
    raw.get().parse().map_err(|_| Problem::kind(member, "true or false", raw.get()))
}

/// The string that a JSON literal stands for, or `None` where it is not one.
pub(super) fn unquote(literal: &str) -> Option<Cow<'_, str>> {
    let inside = literal.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        return serde_json::from_str(literal).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inside))
}

/// The sentence for an error in the JSON of `text`, with a word on numbers that JSON does not have.
pub(super) fn sentence(error: &serde_json::Error, text: &str) -> String {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let around = line
        .get(error.column().saturating_sub(2)..)
        .unwrap_or_default()
        .trim_start_matches([' ', ',', '[', '-']);
    let mut message = json_error(error);
    if around.starts_with("NaN") || around.starts_with("Inf") {
        message.push_str("; JSON has no NaN and no Infinity, send them as binary data");
    }
    message
}

/// Finds which of these names a key is.
struct Key<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

impl<'de, const N: usize> DeserializeSeed<'de> for Members<N> {
    type Value = Found<'de, N>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'de, N>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Members<N> {
    type Value = Found<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de, N>, A::Error> {
        let mut found = [None; N];
        while let Some(position) = map.next_key_seed(Key(&self.names))? {
            let Some((slot, name)) = position.and_then(|at| Some((found.get_mut(at)?, self.names.get(at)?)))
            else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if slot.is_some() {
                return Err(Error::duplicate_field(name));
            }
            *slot = map.next_value()?;
        }
        Ok(found)
    }
}

impl<'de, const N: usize> DeserializeSeed<'de> for Entries<N> {
    type Value = Option<Vec<Found<'de, N>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Entries<N> {
    type Value = Option<Vec<Found<'de, N>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be an array of objects", self.list)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element_seed(self.each)? {
            // An entry takes more memory than its text, so that a body of `{},` must not be believed.
            if entries.len() == self.limit {
                return Err(Error::custom(format_args!(
                    "`{}` has more than {} entries",
                    self.list, self.limit
                )));
            }
            entries.push(entry);
        }
        Ok(Some(entries))
    }
}

impl<'de, const I: usize, const O: usize> DeserializeSeed<'de> for HeadSeed<I, O> {
    type Value = Head<'de, I, O>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const I: usize, const O: usize> Visitor<'de> for HeadSeed<I, O> {
    type Value = Head<'de, I, O>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an inference request object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        const NAMES: [&str; 4] = ["id", "parameters", "inputs", "outputs"];
        let (mut inputs, mut outputs) = (Some(self.inputs), Some(self.outputs));
        let mut head = Head { id: None, parameters: None, inputs: None, outputs: None };
        let mut seen = [false; NAMES.len()];
        while let Some(position) = map.next_key_seed(Key(&NAMES))? {
            if let Some((seen, name)) = position.and_then(|at| Some((seen.get_mut(at)?, NAMES.get(at)?)))
                && std::mem::replace(seen, true)
            {
                return Err(Error::duplicate_field(name));
            }
            match position {
                Some(0) => head.id = map.next_value()?,
                Some(1) => head.parameters = map.next_value()?,
                Some(2) if let Some(seed) = inputs.take() => head.inputs = map.next_value_seed(seed)?,
                Some(3) if let Some(seed) = outputs.take() => head.outputs = map.next_value_seed(seed)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(head)
    }
}
