//! A text that was read without a schema, under a schema: names become fields, values get their kinds. Every fault is
//! collected, and how well a schema fits tells which generation a file is of.

use super::text::{Raw, RawField};
use super::tree::{Fault, Field, Message, Place, Value};
use crate::spec::nearest::nearest;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// Most faults noted: behind these the file is something else.
const MAX_FAULTS: usize = 500;

/// Gives fields their kinds; notes every fault.
pub fn message(desc: &MessageDescriptor, raw: &[RawField], path: &str, faults: &mut Vec<Fault>) -> Message {
    let mut out = Message { desc: desc.clone(), fields: Vec::new() };
    for field in raw {
        if faults.len() >= MAX_FAULTS {
            break;
        }
        let here = join(path, &field.name);
        let Some(known) = desc.get_field_by_name(&field.name) else {
            faults.push(Fault::unknown(field.place, path, unknown(desc, &field.name), size(&field.value)));
            continue;
        };
        let items: Vec<(Place, &Raw)> = match &field.value {
            Raw::List(items) if known.is_list() => items.iter().map(|(place, value)| (*place, value)).collect(),
            Raw::List(_) => {
                faults.push(Fault::at(field.place, here, "this field has one value, found a list"));
                continue;
            }
            value => vec![(field.place, value)],
        };
        for (place, value) in items {
            match value_of(&known, value, &here, place, faults) {
                Some(value) => add(&mut out, Field::new(known.clone(), place, value), path, faults),
                None => continue,
            }
        }
    }
    out
}

/// Adds a field to a message unless it, or another of its `oneof`, stands there already.
pub fn add(message: &mut Message, field: Field, path: &str, faults: &mut Vec<Fault>) {
    if !field.desc.is_list() {
        if let Some(first) = message.fields.iter().find(|f| f.desc == field.desc) {
            let text = format!("stands twice, first on {}", first.place);
            faults.push(Fault::at(field.place, join(path, field.name()), text));
            return;
        }
        let oneof = field.desc.containing_oneof();
        if let Some(rival) = message.fields.iter().find(|f| oneof.is_some() && f.desc.containing_oneof() == oneof) {
            let text = format!("{} stands already on {}; a file has one of them", rival.name(), rival.place);
            faults.push(Fault::at(field.place, join(path, field.name()), text));
            return;
        }
    }
    message.fields.push(field);
}

/// How many fields a value holds, itself included.
fn size(raw: &Raw) -> usize {
    match raw {
        Raw::Message(fields) => fields.iter().map(|f| size(&f.value)).sum::<usize>() + 1,
        Raw::List(items) => items.iter().map(|(_, value)| size(value)).sum::<usize>() + 1,
        _ => 1,
    }
}

/// A path with one more name.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// What to say of a name that a message does not have.
fn unknown(desc: &MessageDescriptor, name: &str) -> String {
    let names: Vec<String> = desc.fields().map(|f| f.name().to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(name, &names) {
        Some(near) => format!("unknown field {name:?}; did you mean {near:?}?"),
        None => format!("unknown field {name:?}; known here: {}", names.join(", ")),
    }
}

fn value_of(desc: &FieldDescriptor, raw: &Raw, path: &str, place: Place, faults: &mut Vec<Fault>) -> Option<Value> {
    let mut say = |message: String| {
        faults.push(Fault::at(place, path, message));
        None
    };
    match (desc.kind(), raw) {
        (Kind::Message(inner), Raw::Message(fields)) => Some(Value::Message(message(&inner, fields, path, faults))),
        (Kind::Message(_), other) => say(format!("expected a message in braces, found {}", shown(other))),
        (Kind::Float, Raw::Number(text)) => match float(text) {
            Some(x) => Some(Value::Float(x)),
            None => say(format!("{text} is not a number that a 32-bit float holds")),
        },
        (Kind::Float, Raw::Word(word)) => say(format!("expected a finite number, found {word}")),
        (Kind::Float, other) => say(format!("expected a number, found {}", shown(other))),
        (Kind::Bool, Raw::Word(word)) if matches!(word.as_str(), "true" | "True" | "t") => Some(Value::Bool(true)),
        (Kind::Bool, Raw::Word(word)) if matches!(word.as_str(), "false" | "False" | "f") => Some(Value::Bool(false)),
        (Kind::Bool, Raw::Number(text)) if text == "0" || text == "1" => Some(Value::Bool(text == "1")),
        (Kind::Bool, other) => say(format!("expected true or false, found {}", shown(other))),
        (Kind::String, Raw::Text(text)) => Some(Value::Text(text.clone())),
        (Kind::String, other) => say(format!("expected a text in quotes, found {}", shown(other))),
        (Kind::Enum(words), Raw::Word(word)) => match words.get_value_by_name(word) {
            Some(value) => Some(Value::Enum(value.number())),
            None => say(format!("{word} is none of {}", enum_words(&words))),
        },
        (Kind::Enum(words), Raw::Number(text)) => {
            match whole(text).and_then(|n| i32::try_from(n).ok()).filter(|n| words.get_value(*n).is_some()) {
                Some(n) => Some(Value::Enum(n)),
                None => say(format!("{text} is none of {}", enum_words(&words))),
            }
        }
        (Kind::Enum(words), other) => say(format!("expected one of {}, found {}", enum_words(&words), shown(other))),
        (_, Raw::Number(text)) => match whole(text) {
            Some(n) => Some(Value::Int(n)),
            None => say(format!("expected a whole number of 64 bits, found {text}")),
        },
        (_, other) => say(format!("expected a whole number, found {}", shown(other))),
    }
}

/// The words of an enum, without its zero and second spellings.
pub fn enum_words(desc: &prost_reflect::EnumDescriptor) -> String {
    let mut seen = Vec::new();
    let words: Vec<String> = desc
        .values()
        .filter(|v| {
            v.number() != 0 && !seen.contains(&v.number()) && {
                seen.push(v.number());
                true
            }
        })
        .map(|v| v.name().to_string())
        .collect();
    words.join(", ")
}

fn shown(raw: &Raw) -> String {
    match raw {
        Raw::Number(text) | Raw::Word(text) => text.clone(),
        Raw::Text(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        Raw::Message(_) => "a message".into(),
        Raw::List(_) => "a list".into(),
    }
}

/// A whole number in decimal, hexadecimal or octal.
fn whole(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let size = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        i128::from(u64::from_str_radix(hex, 16).ok()?)
    } else if digits.len() > 1 && digits.starts_with('0') {
        i128::from(u64::from_str_radix(digits, 8).ok()?)
    } else {
        i128::from(digits.parse::<u64>().ok()?)
    };
    i64::try_from(sign * size).ok()
}

/// A number as a 32-bit float; none if it is not finite.
fn float(text: &str) -> Option<f32> {
    let body = text.strip_suffix(['f', 'F']).unwrap_or(text);
    let decimal = body.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    let value = if decimal { body.parse::<f64>().ok()? as f32 } else { whole(text)? as f32 };
    value.is_finite().then_some(value)
}
