//! What JSON Schema says of the values of a kind.

use serde_json::{Value as Json, json};

use super::Kind;
use super::debezium;
use crate::config::format::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode};

/// The schema of a value that is not NULL.
#[must_use]
pub fn of(kind: &Kind) -> Json {
    match kind {
        Kind::Integer => json!({ "type": "integer" }),
        Kind::Float => json!({ "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }] }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Json => json!({ "description": "the JSON itself" }),
        Kind::Timestamp | Kind::TimestampTz => json!({ "type": "string", "description": "ISO 8601, or the server's text" }),
        Kind::Bytes => base64(),
        Kind::Text => text(),
        // An element may be an array, of the next dimension.
        Kind::Array { element, .. } => {
            let items = json!({ "anyOf": [of(element), { "type": ["null", "array"] }] });
            json!({ "anyOf": [{ "type": "array", "items": items }, { "type": "string", "description": "the server's text" }] })
        }
        Kind::Debezium(kind) => of_debezium(kind),
    }
}

fn of_debezium(kind: &debezium::Kind) -> Json {
    use debezium::Kind as K;
    let float = || json!({ "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }] });
    let time = |mode: TimeMode| if mode == TimeMode::Iso { text() } else { json!({ "type": "integer" }) };
    match kind {
        K::Integer => json!({ "type": "integer" }),
        K::Float(_) => float(),
        K::Boolean | K::Bit => json!({ "type": "boolean" }),
        K::Decimal { mode: DecimalMode::Precise, scale: None } => json!({
            "type": "object", "required": ["scale", "value"], "properties": { "scale": { "type": "integer" }, "value": base64() }
        }),
        K::Decimal { mode: DecimalMode::Precise, scale: Some(scale) } => unscaled(*scale),
        K::Money(DecimalMode::Precise) => unscaled(2),
        K::Decimal { mode: DecimalMode::String, .. } | K::Money(DecimalMode::String) => text(),
        K::Decimal { mode: DecimalMode::Double, .. } | K::Money(DecimalMode::Double) => float(),
        K::Bytes(BinaryMode::Bytes | BinaryMode::Base64) | K::Bits => base64(),
        K::Bytes(BinaryMode::Base64UrlSafe | BinaryMode::Hex) => text(),
        K::Date(mode) | K::Time { mode, .. } | K::Timestamp { mode, .. } => time(*mode),
        K::Interval(IntervalMode::Numeric) => json!({ "type": "integer" }),
        K::Hstore(HstoreMode::Map) => json!({ "type": "object", "additionalProperties": { "type": ["string", "null"] } }),
        K::Point => json!({
            "type": "object",
            "required": ["x", "y", "wkb", "srid"],
            "properties": { "x": float(), "y": float(), "wkb": base64(), "srid": { "type": "null" } }
        }),
        K::Vector => json!({ "type": "array", "items": { "type": "integer" } }),
        K::TimeTz | K::TimestampTz { .. } | K::Interval(IntervalMode::Iso) | K::Hstore(HstoreMode::Json) | K::Text => text(),
    }
}

/// Bytes that are not UTF-8 are no text.
fn text() -> Json {
    json!({ "anyOf": [
        { "type": "string" },
        { "type": "object", "required": ["base64"], "properties": { "base64": base64() } }
    ] })
}

fn base64() -> Json {
    json!({ "type": "string", "contentEncoding": "base64" })
}

fn unscaled(scale: i32) -> Json {
    json!({ "type": "string", "contentEncoding": "base64", "description": format!("the unscaled integer, scale {scale}") })
}
