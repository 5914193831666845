//! The replication slot: what it looks like, how it is made and dropped.

use std::time::Duration;

use crate::config::Address;
use crate::lsn::Lsn;
use crate::postgres::sql::Sql;
use crate::postgres::wire::{Purpose, Wire};
use crate::postgres::{SourceError, quote_identifier, quote_literal};
use crate::splice::snapshot::Snapshot;

/// A row of `pg_replication_slots`, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotSeen {
    Missing,
    Present(Slot),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// `pgoutput` for ours; empty for a physical slot.
    pub plugin: String,
    pub database: String,
    pub temporary: bool,
    /// Synchronised from a primary: cannot be used here.
    pub synced: bool,
    pub two_phase: bool,
    /// `None` while the slot is being made.
    pub confirmed_flush_lsn: Option<Lsn>,
    pub restart_lsn: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: String,
    /// Bytes that may still be written before the slot is in danger; `None`: no limit, or lost.
    pub safe_wal_size: Option<i64>,
    /// 17 and later; before, `lost` is all there is.
    pub invalidation_reason: Option<String>,
    pub active_pid: Option<i32>,
    /// Bytes of log that the slot keeps.
    pub kept_bytes: u64,
    /// Bytes of log written past `confirmed_flush_lsn`.
    pub lag_bytes: u64,
}

impl Slot {
    /// Why it can never be read from again, if so.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        match &self.invalidation_reason {
            Some(reason) => Some(reason.clone()),
            None if self.wal_status == "lost" => Some("wal_removed".to_owned()),
            None => None,
        }
    }
}

/// Looks at the slot.
///
/// # Errors
/// The server's.
pub async fn look(sql: &Sql, version: u32, name: &str) -> Result<SlotSeen, SourceError> {
    // Columns that came later: invalidation_reason and synced with 17, conflicting with 16.
    let later = match version {
        170_000.. => "invalidation_reason, synced",
        160_000.. => "CASE WHEN conflicting THEN 'conflict' END AS invalidation_reason, false AS synced",
        _ => "NULL AS invalidation_reason, false AS synced",
    };
    let statement = format!(
        "SELECT coalesce(plugin, '') AS plugin, coalesce(database, '') AS database, temporary, two_phase, confirmed_flush_lsn, restart_lsn, \
         coalesce(wal_status, 'reserved') AS wal_status, safe_wal_size, active_pid, \
         greatest(pg_wal_lsn_diff(reached, restart_lsn), 0)::bigint AS kept, \
         greatest(pg_wal_lsn_diff(reached, confirmed_flush_lsn), 0)::bigint AS lag, {later} \
         FROM pg_replication_slots, \
         (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS reached) AS log \
         WHERE slot_name = {}",
        quote_literal(name)
    );
    let rows = sql.rows("look at the slot", &statement).await?;
    let Some(row) = rows.first() else { return Ok(SlotSeen::Missing) };
    Ok(SlotSeen::Present(Slot {
        plugin: row.text("plugin")?.to_owned(),
        database: row.text("database")?.to_owned(),
        temporary: row.is_true("temporary")?,
        synced: row.is_true("synced")?,
        two_phase: row.is_true("two_phase")?,
        confirmed_flush_lsn: row.parsed_optional("confirmed_flush_lsn")?,
        restart_lsn: row.parsed_optional("restart_lsn")?,
        wal_status: row.text("wal_status")?.to_owned(),
        safe_wal_size: row.parsed_optional("safe_wal_size")?,
        invalidation_reason: row.optional("invalidation_reason")?.map(str::to_owned),
        active_pid: row.parsed_optional("active_pid")?,
        kept_bytes: row.parsed("kept")?,
        lag_bytes: row.parsed("lag")?,
    }))
}

/// A slot just made, and what its exported snapshot sees.
#[derive(Clone, Debug)]
pub struct Made {
    pub consistent_point: Lsn,
    pub exported_snapshot: Snapshot,
}

/// Makes the slot by `CREATE_REPLICATION_SLOT` with an exported snapshot, and reads that snapshot's text.
/// Never by the SQL function: the snapshot is what tells which transactions the slot will not send (SPLICE H2).
/// Waits for transactions that are open at this moment, in any database, without a limit of its own: `backend` is told
/// which process does, for [`cancel`].
///
/// # Errors
/// Rights, limits, `wal_level`, the connection.
pub async fn make(
    address: &Address,
    application_name: &str,
    timeout: Duration,
    name: &str,
    version: u32,
    failover: bool,
    backend: impl FnOnce(i32),
) -> Result<Made, SourceError> {
    let mut wire = Wire::connect(address, Purpose::Replication, application_name, timeout).await?;
    backend(wire.backend_pid());
    let slot = quote_identifier(name);
    let statement = match (version, failover) {
        (170_000.., true) => format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER)"),
        (150_000.., _) => format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'export')"),
        _ => format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT"),
    };
    let answer = wire.query("create the replication slot", &statement).await?;
    let row = answer.into_iter().next().unwrap_or_default();
    let column = |index: usize, what: &'static str| row.get(index).cloned().flatten().ok_or(SourceError::Missing { what });
    let consistent_point = column(1, "a consistent point")?;
    let consistent_point =
        consistent_point.parse().map_err(|_| SourceError::Protocol { what: format!("consistent point `{consistent_point}`") })?;
    let exported = column(2, "an exported snapshot")?;

    // The snapshot lives until the next command on `wire`, which is kept open until it has been read.
    let sql = Sql::connect(address, application_name, timeout).await?;
    sql.run(
        "import the exported snapshot",
        &format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}", quote_literal(&exported)),
    )
    .await?;
    let row = sql.row("read the exported snapshot", "SELECT pg_current_snapshot()::text AS snapshot").await?;
    let exported_snapshot = row.parsed("snapshot")?;
    sql.run("release the exported snapshot", "COMMIT").await?;
    drop(wire);
    Ok(Made { consistent_point, exported_snapshot })
}

/// Ends what a backend of ours is doing. One that makes a slot would keep the log for it, long after its client is gone.
///
/// # Errors
/// The connection's.
pub async fn cancel(address: &Address, application_name: &str, timeout: Duration, backend: i32) -> Result<(), SourceError> {
    let sql = Sql::connect(address, application_name, timeout).await?;
    sql.run("cancel the making of the slot", &format!("SELECT pg_cancel_backend({backend})")).await
}

/// Drops the slot.
///
/// # Errors
/// It is in use, or the rights are missing.
pub async fn drop_slot(sql: &Sql, name: &str) -> Result<(), SourceError> {
    sql.run("drop the replication slot", &format!("SELECT pg_drop_replication_slot({})", quote_literal(name))).await
}
