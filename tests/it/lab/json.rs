//! JSON with every digit of its numbers: a parser that rounds could not tell two values apart.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Error;
use serde_json::value::RawValue;

/// A JSON value; a number is its text. Printed with the fields of objects in alphabetical order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        Self::from_raw(serde_json::from_str(text)?)
    }

    fn from_raw(raw: &RawValue) -> Result<Self, Error> {
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'{') => {
                let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
                Self::Object(fields.into_iter().map(|(name, value)| Ok((name, Self::from_raw(&value)?))).collect::<Result<_, Error>>()?)
            }
            Some(b'[') => {
                let elements: Vec<Box<RawValue>> = serde_json::from_str(text)?;
                Self::Array(elements.iter().map(|element| Self::from_raw(element)).collect::<Result<_, _>>()?)
            }
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b't' | b'f') => Self::Bool(serde_json::from_str(text)?),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.to_owned()),
        })
    }

    /// A field of an object; `None` where there is no such field, or it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name).filter(|value| **value != Self::Null)
    }

    pub(crate) fn as_object(&self) -> Option<&BTreeMap<String, Self>> {
        if let Self::Object(fields) = self { Some(fields) } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(elements) = self { Some(elements) } else { None }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Self::Number(digits) = self { digits.parse().ok() } else { None }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| serde_json::to_string(text).map_err(|_| fmt::Error);
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(digits) => f.write_str(digits),
            Self::Text(value) => f.write_str(&text(value)?),
            Self::Array(elements) => {
                let elements: Vec<String> = elements.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", elements.join(","))
            }
            Self::Object(fields) => {
                let field = |(name, value): (&String, &Self)| Ok(format!("{}:{value}", text(name)?));
                let fields: Vec<String> = fields.iter().map(field).collect::<Result<_, fmt::Error>>()?;
                write!(f, "{{{}}}", fields.join(","))
            }
        }
    }
}
