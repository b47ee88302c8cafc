//! One event, as written, before it is judged. Which arguments are kept is the reader's choice; how an event is read is not.

use crate::trace::raw::{Key, Raw, field};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The arguments that a reader keeps.
pub(crate) trait Arguments<'a>: Default {
    /// Whether an argument is kept; the values of others are passed over.
    fn wants(key: &str) -> bool;
    /// Keeps an argument that is wanted.
    fn put(&mut self, key: Cow<'a, str>, value: Raw<'a>);
}

/// An event as written; what it lacks is `None`.
#[derive(Debug, Default)]
pub(crate) struct Written<'a, A> {
    /// `ph`.
    pub phase: Option<Cow<'a, str>>,
    /// `cat`.
    pub category: Option<Cow<'a, str>>,
    /// `name`.
    pub name: Option<Cow<'a, str>>,
    /// `pid`.
    pub pid: Option<Raw<'a>>,
    /// `tid`.
    pub tid: Option<Raw<'a>>,
    /// `id`.
    pub id: Option<Raw<'a>>,
    /// `ts`, its text.
    pub ts: Option<&'a str>,
    /// `dur`, its text.
    pub dur: Option<&'a str>,
    /// Arguments.
    pub args: A,
}

impl<'de, A: Arguments<'de>> Deserialize<'de> for Written<'de, A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EventVisitor<A>(PhantomData<A>);
        impl<'de, A: Arguments<'de>> Visitor<'de> for EventVisitor<A> {
            type Value = Written<'de, A>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event (an object)")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut out = Written::default();
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        "ph" => out.phase = Some(field::<M, Key<'de>>(&mut map, "ph")?.0),
                        "cat" => out.category = Some(field::<M, Key<'de>>(&mut map, "cat")?.0),
                        "name" => out.name = Some(field::<M, Key<'de>>(&mut map, "name")?.0),
                        "pid" => out.pid = Some(field(&mut map, "pid")?),
                        "tid" => out.tid = Some(field(&mut map, "tid")?),
                        "id" => out.id = Some(field(&mut map, "id")?),
                        "ts" => out.ts = Some(field::<M, &'de RawValue>(&mut map, "ts")?.get()),
                        "dur" => out.dur = Some(field::<M, &'de RawValue>(&mut map, "dur")?.get()),
                        "args" => out.args = field::<M, Kept<A>>(&mut map, "args")?.0,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(EventVisitor(PhantomData))
    }
}

/// The arguments: an object, or `null`.
struct Kept<A>(A);

impl<'de, A: Arguments<'de>> Deserialize<'de> for Kept<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentsVisitor<A>(PhantomData<A>);
        impl<'de, A: Arguments<'de>> Visitor<'de> for ArgumentsVisitor<A> {
            type Value = Kept<A>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of arguments")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Kept(A::default()))
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut out = A::default();
                while let Some(Key(key)) = map.next_key()? {
                    if A::wants(&key) {
                        let value = field(&mut map, &key)?;
                        out.put(key, value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Kept(out))
            }
        }
        deserializer.deserialize_any(ArgumentsVisitor(PhantomData))
    }
}
