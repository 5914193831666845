//! `walgate schema`: the JSON Schemas of what subscribers read, and that of one table's events.

use std::io::Write as _;
use std::sync::Arc;

use crate::config::Config;
use crate::event::plan::{TablePlan, is_keyed};
use crate::event::schema::{ALL, of_table};
use crate::event::topic::{Topic, topic_name};
use crate::exit::Exit;
use crate::postgres::sql::Sql;
use crate::postgres::{SourceError, catalog, publication};

/// Prints one of those that come with the program, or all of them, by name; `None`: it is none of them.
pub(super) fn shipped(name: Option<&str>) -> Option<anyhow::Result<Exit>> {
    let print = |text: &str| -> anyhow::Result<Exit> {
        writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
        Ok(Exit::Success)
    };
    let Some(name) = name else {
        let all: Vec<String> = ALL.iter().map(|(name, text)| format!("\"{name}\":{}", text.trim_end())).collect();
        return Some(print(&format!("{{{}}}", all.join(",\n"))));
    };
    ALL.iter().find(|(of, _)| *of == name).map(|(_, text)| print(text))
}

/// Prints that of a published table, `schema.table`, as the catalog describes it now.
pub(super) fn of_published(config: &Config, name: &str) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(plan(config, name)) {
        Ok(Some(plan)) => {
            writeln!(std::io::stdout().lock(), "{:#}", of_table(&plan)?)?;
            Ok(Exit::Success)
        }
        Ok(None) => {
            let names: Vec<String> = ALL.iter().map(|(name, _)| format!("`{name}`")).collect();
            super::complain(&format!(
                "`{name}` is no published table, nor one of the schemas {}: write `schema.table` as `walgate check` names it",
                names.join(", ")
            ));
            Ok(Exit::Usage)
        }
        Err(error) => Err(error.into()),
    }
}

async fn plan(config: &Config, name: &str) -> Result<Option<TablePlan>, SourceError> {
    let sql = Sql::connect(&config.source.postgres, "walgate schema", config.source.connect_timeout).await?;
    let version: u32 = sql.row("look at the server", "SELECT current_setting('server_version_num') AS version").await?.parsed("version")?;
    let published = publication::tables(&sql, version, &config.source.publication).await?;
    let Some(table) = published.iter().find(|table| format!("{}.{}", table.schema, table.name) == name) else { return Ok(None) };
    let Some(table) = catalog::table(&sql, version, &config.source.publication, table.oid).await? else { return Ok(None) };
    let topic = topic_name(&config.sink.topic_prefix, &table.relation.schema, &table.relation.name);
    let topic = Arc::new(Topic { name: topic, keyed: is_keyed(&table.relation, &table.facts) });
    Ok(Some(TablePlan::new(table.relation, &table.facts, topic, &config.format)))
}
