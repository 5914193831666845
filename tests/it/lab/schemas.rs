//! The JSON Schemas that subscribers are given. Every event of the program that a test reads has to fit them.
//!
//! A subscriber ignores fields that it does not know; a test does not: here each field has to be described.

use std::sync::LazyLock;

use jsonschema::{Registry, RegistryBuilder, Validator};
use serde_json::Value;

use super::json::Json;

/// One of the schemas of `schemas/`, or one that was printed for a table.
pub(crate) struct Schema {
    name: String,
    validator: Validator,
}

macro_rules! schema {
    ($name:literal) => {
        LazyLock::new(|| Schema::compile($name, include_str!(concat!("../../../schemas/", $name, ".schema.json"))))
    };
}

pub(crate) static LINE: LazyLock<Schema> = schema!("line");
pub(crate) static EVENT: LazyLock<Schema> = schema!("event");
pub(crate) static KEY: LazyLock<Schema> = schema!("key");
pub(crate) static REBUILD_MARK: LazyLock<Schema> = schema!("rebuild_mark");
pub(crate) static DEAD_LETTER: LazyLock<Schema> = schema!("dead_letter");
pub(crate) static TRANSACTION: LazyLock<Schema> = schema!("transaction");
pub(crate) static COMMITTED: LazyLock<Schema> = schema!("committed");

/// The schemas that others refer to, by the name under which they do.
const REFERRED_TO: [(&str, &str); 5] = [
    ("transaction.schema.json", include_str!("../../../schemas/transaction.schema.json")),
    ("key.schema.json", include_str!("../../../schemas/key.schema.json")),
    ("event.schema.json", include_str!("../../../schemas/event.schema.json")),
    ("rebuild_mark.schema.json", include_str!("../../../schemas/rebuild_mark.schema.json")),
    ("progress.schema.json", include_str!("../../../schemas/progress.schema.json")),
];

impl Schema {
    pub(crate) fn compile(name: &str, text: &str) -> Self {
        let schema = closed(text);
        jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("`{name}` is no JSON Schema: {error}"));
        let add = |registry: RegistryBuilder<'static>, (name, text): &(&str, &str)| {
            registry.add(format!("json-schema:///{name}"), closed(text)).expect("a name can be added")
        };
        let registry = REFERRED_TO.iter().fold(Registry::new(), add).prepare().expect("the schemas refer to each other only");
        let validator = jsonschema::draft202012::options().with_registry(&registry).build(&schema);
        Self { name: name.to_owned(), validator: validator.unwrap_or_else(|error| panic!("`{name}` does not compile: {error}")) }
    }

    #[track_caller]
    pub(crate) fn assert_fits(&self, json: &Json) {
        let value = plain(json);
        if !self.validator.is_valid(&value) {
            let output = self.validator.evaluate(&value);
            let list = serde_json::to_string_pretty(&output.list()).unwrap_or_default();
            panic!("does not fit the schema `{}`: {json}\n{list}", self.name);
        }
    }

    pub(crate) fn fits(&self, json: &Json) -> bool {
        self.validator.is_valid(&plain(json))
    }
}

/// A schema whose objects have no fields but those described.
fn closed(text: &str) -> Value {
    let mut schema = serde_json::from_str(text).expect("a schema is JSON");
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.contains_key("required") {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(close),
        _ => {}
    }
}

/// A number past what a double holds becomes 0: it is a number all the same.
fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => serde_json::from_str(digits).unwrap_or_else(|_| 0.into()),
        Json::Text(text) => Value::String(text.clone()),
        Json::Array(elements) => elements.iter().map(plain).collect(),
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
    }
}
