//! The short way through a plain node: its fields are handed on as they stand, where the general way ([`super::read`]) makes a [`super::Node`]
//! with a list of attributes. Whatever is not plain is `None`, and goes the general way: only that says what is wrong.

use super::read::{attribute, from_number, width};
use super::value::{Kind, Scalar, Value};
use super::wire::Message;
use crate::trace::intern::Interner;

/// A field of a node.
#[derive(Debug)]
pub(crate) enum Plain<'a> {
    /// Id.
    Id(u64),
    /// Name.
    Name(&'a str),
    /// A control dependency.
    Ctrl(u64),
    /// Values, shapes or types (0, 1, 2) of inputs, or of outputs.
    Io(bool, usize, &'a str),
    /// Name and value of an attribute. Whether a name that nobody knows is text is left to who takes it.
    Attr(&'a [u8], Value),
}

/// Hands the fields of a node to `each`, but for kind, data dependencies and whole microseconds.
pub(crate) fn node<'a>(
    bytes: &'a [u8],
    strings: &mut Interner,
    mut each: impl FnMut(Plain<'a>, &mut Interner) -> Option<()>,
) -> Option<()> {
    let mut message = Message::new(bytes);
    while !message.at_end() {
        // Tags of the schema's fields with their wire types.
        match message.number()? {
            0x08 => each(Plain::Id(message.number()?), strings)?,
            0x12 => each(Plain::Name(text(&mut message)?), strings)?,
            0x18 | 0x28 | 0x30 | 0x38 => {
                message.number()?;
            }
            0x20 => each(Plain::Ctrl(message.number()?), strings)?,
            0x22 => {
                let mut packed = Message::new(message.contents()?);
                while !packed.at_end() {
                    each(Plain::Ctrl(packed.number()?), strings)?;
                }
            }
            0x2a => {
                let mut packed = Message::new(message.contents()?);
                while !packed.at_end() {
                    packed.number()?;
                }
            }
            tag @ (0x42 | 0x4a) => {
                let mut io = Message::new(message.contents()?);
                while !io.at_end() {
                    let field = match io.number()? {
                        0x0a => 0,
                        0x12 => 1,
                        0x1a => 2,
                        _ => return None,
                    };
                    each(Plain::Io(tag == 0x4a, field, text(&mut io)?), strings)?;
                }
            }
            0x52 => {
                let bytes = message.contents()?;
                let mut attr = Message::new(bytes);
                if attr.number()? != 0x0a {
                    return None;
                }
                let name = attr.contents()?;
                let value = match value(attr, strings) {
                    Some(value) => value,
                    // Lists, remarks, what has no value.
                    None => {
                        match attribute(Message::new(bytes), strings).ok().filter(|a| a.name.as_bytes() == name)?.value
                        {
                            Some(value) => value,
                            None => continue,
                        }
                    }
                };
                each(Plain::Attr(name, value), strings)?;
            }
            _ => return None,
        }
    }
    Some(())
}

#[inline]
fn text<'a>(message: &mut Message<'a>) -> Option<&'a str> {
    std::str::from_utf8(message.contents()?).ok()
}

/// A number or text that is all there is behind an attribute's name.
#[inline]
fn value(mut attr: Message<'_>, strings: &mut Interner) -> Option<Value> {
    let tag = attr.number()?;
    let (kind, list) = Kind::from_tag(u32::try_from(tag >> 3).ok()?)?;
    let scalar = match (kind, tag & 7) {
        _ if list => return None,
        (Kind::Bytes, _) => return None,
        (Kind::String, 2) => Scalar::String(strings.get(text(&mut attr)?)),
        (Kind::String, _) => return None,
        (kind, 0) if width(kind).is_none() => from_number(kind, attr.number()?),
        _ => return None,
    };
    attr.at_end().then_some(Value::One(scalar))
}
