//! Attributes: a name and one of thirty kinds of value. Producers do not agree on the kind for one name, so accessors take any that
//! can be meant.

use crate::trace::Text;

/// Scalar kinds, in the schema's order: the n-th has tag 3 + 2n, its list tag 4 + 2n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `double`
    Double,
    /// `float`
    Float,
    /// `int32`
    Int32,
    /// `int64`
    Int64,
    /// `uint32`
    Uint32,
    /// `uint64`
    Uint64,
    /// `sint32`
    Sint32,
    /// `sint64`
    Sint64,
    /// `fixed32`
    Fixed32,
    /// `fixed64`
    Fixed64,
    /// `sfixed32`
    Sfixed32,
    /// `sfixed64`
    Sfixed64,
    /// `bool`
    Bool,
    /// `string`
    String,
    /// `bytes`
    Bytes,
}

impl Kind {
    /// All, in the schema's order.
    pub const ALL: [Self; 15] = [
        Self::Double,
        Self::Float,
        Self::Int32,
        Self::Int64,
        Self::Uint32,
        Self::Uint64,
        Self::Sint32,
        Self::Sint64,
        Self::Fixed32,
        Self::Fixed64,
        Self::Sfixed32,
        Self::Sfixed64,
        Self::Bool,
        Self::String,
        Self::Bytes,
    ];

    /// Kind and whether it is a list, from a tag of `AttributeProto`.
    pub(super) fn from_tag(tag: u32) -> Option<(Self, bool)> {
        let n = usize::try_from(tag.checked_sub(3)?).ok()?;
        Self::ALL.get(n / 2).map(|&kind| (kind, n % 2 == 1))
    }

    /// The tag of a scalar or a list.
    pub(super) fn tag(self, list: bool) -> u32 {
        3 + 2 * self as u32 + u32::from(list)
    }

    /// The name of a scalar or a list in protocol buffers' JSON: `int64Val`, `boolList`.
    pub(super) fn json_name(self, list: bool) -> &'static str {
        match (self, list) {
            (Self::Double, false) => "doubleVal",
            (Self::Double, true) => "doubleList",
            (Self::Float, false) => "floatVal",
            (Self::Float, true) => "floatList",
            (Self::Int32, false) => "int32Val",
            (Self::Int32, true) => "int32List",
            (Self::Int64, false) => "int64Val",
            (Self::Int64, true) => "int64List",
            (Self::Uint32, false) => "uint32Val",
            (Self::Uint32, true) => "uint32List",
            (Self::Uint64, false) => "uint64Val",
            (Self::Uint64, true) => "uint64List",
            (Self::Sint32, false) => "sint32Val",
            (Self::Sint32, true) => "sint32List",
            (Self::Sint64, false) => "sint64Val",
            (Self::Sint64, true) => "sint64List",
            (Self::Fixed32, false) => "fixed32Val",
            (Self::Fixed32, true) => "fixed32List",
            (Self::Fixed64, false) => "fixed64Val",
            (Self::Fixed64, true) => "fixed64List",
            (Self::Sfixed32, false) => "sfixed32Val",
            (Self::Sfixed32, true) => "sfixed32List",
            (Self::Sfixed64, false) => "sfixed64Val",
            (Self::Sfixed64, true) => "sfixed64List",
            (Self::Bool, false) => "boolVal",
            (Self::Bool, true) => "boolList",
            (Self::String, false) => "stringVal",
            (Self::String, true) => "stringList",
            (Self::Bytes, false) => "bytesVal",
            (Self::Bytes, true) => "bytesList",
        }
    }

    /// The name in the schema: `int64`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
            Self::Fixed32 => "fixed32",
            Self::Fixed64 => "fixed64",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
        }
    }
}

/// One scalar.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// `double`
    Double(f64),
    /// `float`
    Float(f32),
    /// `int32`
    Int32(i32),
    /// `int64`
    Int64(i64),
    /// `uint32`
    Uint32(u32),
    /// `uint64`
    Uint64(u64),
    /// `sint32`
    Sint32(i32),
    /// `sint64`
    Sint64(i64),
    /// `fixed32`
    Fixed32(u32),
    /// `fixed64`
    Fixed64(u64),
    /// `sfixed32`
    Sfixed32(i32),
    /// `sfixed64`
    Sfixed64(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(Text),
    /// `bytes`
    Bytes(Box<[u8]>),
}

impl Scalar {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Double(_) => Kind::Double,
            Self::Float(_) => Kind::Float,
            Self::Int32(_) => Kind::Int32,
            Self::Int64(_) => Kind::Int64,
            Self::Uint32(_) => Kind::Uint32,
            Self::Uint64(_) => Kind::Uint64,
            Self::Sint32(_) => Kind::Sint32,
            Self::Sint64(_) => Kind::Sint64,
            Self::Fixed32(_) => Kind::Fixed32,
            Self::Fixed64(_) => Kind::Fixed64,
            Self::Sfixed32(_) => Kind::Sfixed32,
            Self::Sfixed64(_) => Kind::Sfixed64,
            Self::Bool(_) => Kind::Bool,
            Self::String(_) => Kind::String,
            Self::Bytes(_) => Kind::Bytes,
        }
    }

    /// As an integer: integers, whole floats, truth values, numbers in strings.
    fn whole(&self) -> Option<i128> {
        match self {
            Self::Int32(v) | Self::Sint32(v) | Self::Sfixed32(v) => Some((*v).into()),
            Self::Int64(v) | Self::Sint64(v) | Self::Sfixed64(v) => Some((*v).into()),
            Self::Uint32(v) | Self::Fixed32(v) => Some((*v).into()),
            Self::Uint64(v) | Self::Fixed64(v) => Some((*v).into()),
            Self::Bool(b) => Some((*b).into()),
            Self::Double(x) => whole_float(*x),
            Self::Float(x) => whole_float((*x).into()),
            Self::String(s) => s.trim().parse().ok(),
            Self::Bytes(_) => None,
        }
    }

    /// As an integer.
    pub fn int(&self) -> Option<i64> {
        self.whole().and_then(|v| v.try_into().ok())
    }

    /// As an integer of at least 0.
    pub fn uint(&self) -> Option<u64> {
        self.whole().and_then(|v| v.try_into().ok())
    }

    /// As a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Double(x) => Some(*x),
            Self::Float(x) => Some((*x).into()),
            Self::String(s) => s.trim().parse().ok(),
            other => other.whole().map(|v| v as f64),
        }
    }

    /// As a truth value.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Self::String(s) => match s.trim() {
                "true" | "True" | "1" => Some(true),
                "false" | "False" | "0" => Some(false),
                _ => None,
            },
            other => other.number().map(|x| x != 0.0),
        }
    }

    /// As text.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::String(s) => Some(s.to_string()),
            Self::Bool(b) => Some(b.to_string()),
            Self::Double(x) => Some(x.to_string()),
            Self::Float(x) => Some(x.to_string()),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
            other => other.whole().map(|v| v.to_string()),
        }
    }
}

fn whole_float(x: f64) -> Option<i128> {
    // 2^53: beyond it a double no longer tells integers apart.
    (x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0).then_some(x as i128)
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One.
    One(Scalar),
    /// A list; all items are of the kind named.
    List(Kind, Vec<Scalar>),
}

impl Value {
    /// Its name in the schema: `int64_val`, `bool_list`.
    pub fn arm(&self) -> String {
        match self {
            Self::One(scalar) => format!("{}_val", scalar.kind().name()),
            Self::List(kind, _) => format!("{}_list", kind.name()),
        }
    }

    /// The scalar, if it is one; a list of one item counts.
    pub fn scalar(&self) -> Option<&Scalar> {
        match self {
            Self::One(scalar) => Some(scalar),
            Self::List(_, items) => match items.as_slice() {
                [one] => Some(one),
                _ => None,
            },
        }
    }

    /// As an integer.
    pub fn int(&self) -> Option<i64> {
        self.scalar()?.int()
    }

    /// As an integer of at least 0.
    pub fn uint(&self) -> Option<u64> {
        self.scalar()?.uint()
    }

    /// As a number.
    pub fn number(&self) -> Option<f64> {
        self.scalar()?.number()
    }

    /// As a truth value.
    pub fn flag(&self) -> Option<bool> {
        self.scalar()?.flag()
    }

    /// As text.
    pub fn text(&self) -> Option<String> {
        self.scalar()?.text()
    }

    /// The items of a list; a scalar is a list of one.
    pub fn items(&self) -> &[Scalar] {
        match self {
            Self::One(scalar) => std::slice::from_ref(scalar),
            Self::List(_, items) => items,
        }
    }
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attr {
    /// Name.
    pub name: Text,
    /// Remark; usually empty.
    pub doc: Text,
    /// Value; some producers write a name alone.
    pub value: Option<Value>,
    /// Fields that the schema does not have, as they stood.
    pub unknown: Vec<u8>,
}

impl Attr {
    /// An attribute with one value.
    pub fn new(name: impl Into<Text>, value: Scalar) -> Self {
        Self { name: name.into(), doc: Text::default(), value: Some(Value::One(value)), unknown: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_arm_will_do() {
        for scalar in [
            Scalar::Int32(1),
            Scalar::Uint64(1),
            Scalar::Sint64(1),
            Scalar::Fixed32(1),
            Scalar::Bool(true),
            Scalar::Double(1.0),
            Scalar::Float(1.0),
            Scalar::String("1".into()),
        ] {
            assert_eq!((scalar.int(), scalar.uint(), scalar.flag()), (Some(1), Some(1), Some(true)), "{scalar:?}");
            assert_eq!(scalar.number(), Some(1.0));
        }
        assert_eq!(Scalar::Int64(-1).uint(), None);
        assert_eq!(Scalar::Uint64(u64::MAX).int(), None);
        assert_eq!(Scalar::Double(0.5).int(), None);
        assert_eq!(Scalar::Double(f64::NAN).int(), None);
        assert_eq!(Scalar::Bytes([1, 2].into()).int(), None);
        assert_eq!(Scalar::Int64(3).text().as_deref(), Some("3"));
    }

    #[test]
    fn tags_are_the_schemas() {
        assert_eq!(Kind::from_tag(2), None);
        assert_eq!(Kind::from_tag(3), Some((Kind::Double, false)));
        assert_eq!(Kind::from_tag(9), Some((Kind::Int64, false)));
        assert_eq!(Kind::from_tag(28), Some((Kind::Bool, true)));
        assert_eq!(Kind::from_tag(32), Some((Kind::Bytes, true)));
        assert_eq!(Kind::from_tag(33), None);
        for kind in Kind::ALL {
            assert_eq!(Kind::from_tag(kind.tag(false)), Some((kind, false)));
            assert_eq!(Kind::from_tag(kind.tag(true)), Some((kind, true)));
        }
    }
}
