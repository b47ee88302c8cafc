//! A JSON value of a trace, borrowed from the text: what serde's own `Value` is, without a copy of each string, and with the kinds of
//! number kept apart.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond 2^63.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>),
    /// A list.
    List(Vec<Raw<'a>>),
    /// An object (contents are of no use to any reader).
    Map,
}

impl Raw<'_> {
    /// A word for messages.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(b) => b.to_string(),
            Self::Int(i) => i.to_string(),
            Self::Uint(u) => u.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Str(s) => format!("{:?}", s.chars().take(40).collect::<String>()),
            Self::List(_) => "a list".into(),
            Self::Map => "an object".into(),
        }
    }

    /// As an integer: numbers, whole floats, and numbers in quotes.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            Self::Uint(u) => i64::try_from(*u).ok(),
            Self::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => Some(*x as i64),
            Self::Str(s) => number(s),
            _ => None,
        }
    }

    /// As an integer without sign.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Uint(u) => Some(*u),
            Self::Str(s) => number(s),
            other => other.integer().and_then(|i| u64::try_from(i).ok()),
        }
    }

    /// As a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// As a list.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// As a list of integers; `None` when it is not one.
    pub(crate) fn integers(&self) -> Option<Box<[i64]>> {
        self.list()?.iter().map(Raw::integer).collect()
    }
}

/// A number in a text; ROCm writes pointers into fields that hold numbers elsewhere, as `0x7f3a`.
fn number<T: std::str::FromStr + TryFrom<u64>>(text: &str) -> Option<T> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().and_then(|n| T::try_from(n).ok()),
        None => text.parse().ok(),
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
        Ok(Raw::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(Raw::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(v).map_or(Raw::Uint(v), Raw::Int))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
        Ok(Raw::Float(v))
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok(Raw::Str(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Raw::Str(Cow::Owned(v.to_owned())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
        Ok(Raw::Map)
    }
}

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

/// A key of an object, borrowed where it has no escapes.
#[derive(Debug)]
pub(crate) struct Key<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The next value of a map, with the field's name in the error.
pub(crate) fn field<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A, name: &str) -> Result<T, A::Error> {
    map.next_value().map_err(|e| de::Error::custom(format!("`{name}`: {e}")))
}

/// An integer of a map, or an error that names the field.
pub(crate) fn integer<'de, A: MapAccess<'de>>(map: &mut A, name: &str) -> Result<i64, A::Error> {
    let raw: Raw<'de> = field(map, name)?;
    raw.integer().ok_or_else(|| de::Error::custom(format!("`{name}`: expected an integer, found {}", raw.kind())))
}

/// An integer without sign of a map, or an error that names the field.
pub(crate) fn unsigned<'de, A: MapAccess<'de>>(map: &mut A, name: &str) -> Result<u64, A::Error> {
    let raw: Raw<'de> = field(map, name)?;
    raw.unsigned()
        .ok_or_else(|| de::Error::custom(format!("`{name}`: expected an integer of at least 0, found {}", raw.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_numbers() {
        let of = |text: &'static str| Raw::Str(text.into());
        assert_eq!((of("0x0").integer(), of("0x7f").unsigned(), of(" 12 ").integer()), (Some(0), Some(127), Some(12)));
        assert_eq!((of("0x").integer(), of("0xffffffffffffffff").integer(), of("x").unsigned()), (None, None, None));
    }
}
