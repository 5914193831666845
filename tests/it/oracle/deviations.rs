//! Where the style differs from the peer on purpose: the names of the README's table, and what each is about.

use serde_json::Value as Json;

use super::compare::Difference;

/// The name of the deviation that a difference belongs to; `None`: it is none that is known.
pub(super) fn name(difference: &Difference) -> Option<&'static str> {
    let Difference { run, topic, field, theirs, ours, event } = difference;
    let (theirs, ours) = (theirs.as_deref(), ours.as_deref());
    let table = topic.rsplit('.').next().unwrap_or_default();
    match field.as_str() {
        "source.version" => return Some("source.version"),
        "source.snapshot" => return Some("source.snapshot"),
        "source.txId" if event.op() == "r" => return Some("source.txId"),
        "source.commit_lsn" | "source.ordinal" | "source.order" | "source.unchanged" if theirs.is_none() => {
            return Some("source additions");
        }
        _ => {}
    }
    if run.starts_with("14") && (field.is_empty() || field == "source.table" || field == "source.schema") {
        return Some("topic names");
    }
    if let (Some(theirs), Some(ours)) = (theirs, ours)
        && let (Ok(theirs), Ok(ours)) = (json(theirs), json(ours))
        && theirs == ours
    {
        return Some("escapes");
    }
    match (table, field.as_str()) {
        ("transaction", "order") => return Some("source additions"),
        ("transaction", "event_count" | "data_collections" | "") => return Some("transaction counts"),
        // The peer asks the catalog of now; alike until then, the events of these tables are others after.
        ("k" | "ren" | "ren2", _) if run.starts_with("13") => return Some("keys at the time"),
        ("idx" | "uq_nopk", "key") => return Some("keys of the identity"),
        ("nopk_full", "") => return Some("tombstones without a key"),
        _ => {}
    }
    let column = field.strip_prefix("after.").or(field.strip_prefix("before."))?;
    value(table, column, field, theirs, ours?, difference)
}

/// Of a column.
fn value(table: &str, column: &str, field: &str, theirs: Option<&str>, ours: &str, difference: &Difference) -> Option<&'static str> {
    let Some(theirs) = theirs else { return Some("columns of other types") };
    let is_of = |start: &str| difference.run.starts_with(start);
    let are_numbers = theirs.parse::<f64>().is_ok() && ours.parse::<f64>().is_ok();
    if column == "n" && table == "t_text" && theirs == "null" {
        return Some("name");
    }
    if column == "nneg" {
        return Some("negative scale");
    }
    // By now, the value that a default gives.
    if column == "tnow" {
        return Some("defaults");
    }
    if is_of("13") && ours == "null" {
        return Some("defaults");
    }
    if field.starts_with("before.")
        && difference.event.op() == "d"
        && (is_of("08") || is_of("09") || is_of("13") || matches!(column, "nn52" | "ivd"))
    {
        return Some("fillers");
    }
    match table {
        "t_float" | "t_num" if are_numbers => {
            let same = theirs.parse::<f64>() == ours.parse::<f64>() || theirs.parse::<f32>() == ours.parse::<f32>();
            same.then_some("float digits")
        }
        "t_interval" | "t_iv2" | "t_ivnn" if are_numbers => {
            let (theirs, ours) = (theirs.parse::<i128>().ok()?, ours.parse::<i128>().ok()?);
            (theirs.abs_diff(ours) < 1_000).then_some("interval digits")
        }
        "t_misc" if ours.starts_with('[') && matches!(theirs, "[]" | "null") => Some("int2vector, oidvector"),
        "t_date" => Some("dates"),
        "t_time" if ours == "\"24:00:00Z\"" => Some("24:00"),
        "t_timestamp" if ours.contains("infinity") => Some("infinite isostring"),
        "t_timestamp" if are_numbers || theirs == "null" => Some("timestamps past 64 bits"),
        "t_arrtime" | "t_timearr" => Some("arrays of times"),
        "t_decnan" | "t_arrother" if theirs == "null" => Some("arrays with an element that is null"),
        "t_arr2d" => Some("arrays of several dimensions"),
        "t_custom" | "t_hs" => Some("hstore order"),
        "t_bin" if column == "g" => Some("columns of other types"),
        "toast_arr" | "toast_nn" => Some("arrays unchanged"),
        _ => None,
    }
}

fn json(text: &str) -> serde_json::Result<Json> {
    serde_json::from_str(text)
}

/// The names in the README's table.
pub(super) fn listed_in_readme() -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let section = readme.split("### Where it differs from Debezium").nth(1).unwrap_or_default();
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| **")?.split_once("**"));
    rows.map(|(name, _)| name.to_owned()).collect()
}
