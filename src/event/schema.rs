//! JSON Schemas for subscribers: those that come with the program, and that of one table's events.

use serde_json::{Map, Value as Json, json};

use super::plan::TablePlan;
use super::value;

/// Name and text of every schema in `schemas/`.
pub const ALL: [(&str, &str); 8] = [
    ("committed", include_str!("../../schemas/committed.schema.json")),
    ("dead_letter", include_str!("../../schemas/dead_letter.schema.json")),
    ("event", include_str!("../../schemas/event.schema.json")),
    ("key", include_str!("../../schemas/key.schema.json")),
    ("line", include_str!("../../schemas/line.schema.json")),
    ("progress", include_str!("../../schemas/progress.schema.json")),
    ("rebuild_mark", include_str!("../../schemas/rebuild_mark.schema.json")),
    ("transaction", include_str!("../../schemas/transaction.schema.json")),
];

/// The schema of key and value of one table's events: that of every event, with the columns of the table. `{"key":…,"value":…}`.
///
/// # Errors
/// The schema that it is made from is no JSON.
pub fn of_table(plan: &TablePlan) -> serde_json::Result<Json> {
    let name = format!("{}.{}", plan.relation().schema, plan.relation().name);
    let columns: Map<String, Json> = plan.columns().map(|(name, kind, nullable)| (name.to_owned(), column(kind, nullable))).collect();
    let shipped = |wanted: &str| ALL.iter().find(|(name, _)| *name == wanted).map_or("null", |(_, text)| *text);
    // It stands alone: what it refers to in another file comes along.
    let mut event: Json = serde_json::from_str(&shipped("event").replace("transaction.schema.json#/$defs/id", "#/$defs/transaction_id"))?;
    let transaction: Json = serde_json::from_str(shipped("transaction"))?;
    let id = transaction.pointer("/$defs/id").cloned().unwrap_or(Json::Bool(true));
    let row = json!({
        "title": "Row",
        "description": format!("A row of {name}: the columns that are known. Columns may be added to the table: ignore those you do not know."),
        "type": "object",
        "properties": columns,
    });
    if let Some(parts) = event.pointer_mut("/$defs").and_then(Json::as_object_mut) {
        parts.insert("transaction_id".to_owned(), id);
        parts.insert("row".to_owned(), row);
    }
    if let Some(fields) = event.as_object_mut() {
        fields.insert("title".to_owned(), json!(format!("Event of {name}")));
    }
    let kinds: Map<String, Json> = plan.columns().map(|(name, kind, _)| (name.to_owned(), value::schema::of(kind))).collect();
    let key: Vec<&str> = plan.key_names().collect();
    let of_key: Map<String, Json> = key.iter().filter_map(|name| Some(((*name).to_owned(), kinds.get(*name)?.clone()))).collect();
    let key = if key.is_empty() {
        json!({ "title": format!("Key of {name}"), "description": "The table has no key.", "type": "null" })
    } else {
        json!({
            "title": format!("Key of {name}"), "description": "Null for a truncation.", "type": ["object", "null"], "required": key, "properties": of_key
        })
    };
    Ok(json!({ "key": key, "value": event }))
}

fn column(kind: &value::Kind, nullable: bool) -> Json {
    let schema = value::schema::of(kind);
    if nullable { json!({ "anyOf": [schema, { "type": "null" }] }) } else { schema }
}
