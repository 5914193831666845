//! Which server this is: system identifier, timeline and its history, version, settings that positions depend on.

use crate::lsn::Lsn;
use crate::postgres::SourceError;
use crate::postgres::sql::Sql;
use crate::postgres::wire::Wire;

/// The server and database at the other end, as seen when a session begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    pub system_identifier: u64,
    pub timeline: u32,
    /// `(first LSN, timeline)`, ascending.
    pub timelines: Vec<(Lsn, u32)>,
    /// End of the log that is safely on disk.
    pub flush_lsn: Lsn,
    /// `server_version_num`.
    pub version: u32,
    pub database: String,
    /// `pg_database.oid`.
    pub database_oid: u32,
    pub in_recovery: bool,
    pub wal_level: String,
    pub wal_segment_size: u64,
    pub wal_block_size: u64,
    pub block_size: u64,
    pub wal_sender_timeout_ms: u64,
    /// `pg_postmaster_start_time()` as text: the same text is the same run of the same server.
    pub started: String,
}

/// Looks at the server over both kinds of connection.
///
/// # Errors
/// The server's, or an answer that is not as documented.
pub async fn look(sql: &Sql, wire: &mut Wire) -> Result<System, SourceError> {
    let answer = wire.query("identify the system", "IDENTIFY_SYSTEM").await?;
    let mut columns = answer.into_iter().next().unwrap_or_default().into_iter();
    let mut column = |what: &'static str| columns.next().flatten().ok_or(SourceError::Missing { what });
    let system_identifier = parse("system identifier", &column("a system identifier")?)?;
    let timeline: u32 = parse("timeline", &column("a timeline")?)?;
    let flush_lsn = parse("flush position", &column("a flush position")?)?;
    let timelines = if timeline == 1 { vec![(Lsn::INVALID, 1)] } else { history(wire, timeline).await? };
    let row = sql
        .row(
            "look at the server",
            "SELECT current_setting('server_version_num') AS version, current_database() AS database, \
             (SELECT oid FROM pg_database WHERE datname = current_database()) AS database_oid, \
             pg_is_in_recovery() AS in_recovery, current_setting('wal_level') AS wal_level, \
             (SELECT setting FROM pg_settings WHERE name = 'wal_segment_size') AS wal_segment_size, \
             current_setting('wal_block_size') AS wal_block_size, current_setting('block_size') AS block_size, \
             (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout') AS wal_sender_timeout, \
             pg_postmaster_start_time()::text AS started",
        )
        .await?;
    Ok(System {
        system_identifier,
        timeline,
        timelines,
        flush_lsn,
        version: row.parsed("version")?,
        database: row.text("database")?.to_owned(),
        database_oid: row.parsed("database_oid")?,
        in_recovery: row.is_true("in_recovery")?,
        wal_level: row.text("wal_level")?.to_owned(),
        wal_segment_size: row.parsed("wal_segment_size")?,
        wal_block_size: row.parsed("wal_block_size")?,
        block_size: row.parsed("block_size")?,
        wal_sender_timeout_ms: row.parsed("wal_sender_timeout")?,
        started: row.text("started")?.to_owned(),
    })
}

async fn history(wire: &mut Wire, timeline: u32) -> Result<Vec<(Lsn, u32)>, SourceError> {
    let answer = wire.query("read the timeline history", &format!("TIMELINE_HISTORY {timeline}")).await?;
    let content = answer.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten());
    let content = content.ok_or(SourceError::Missing { what: "the timeline history" })?;
    parse_history(&content, timeline).ok_or_else(|| SourceError::Protocol { what: "a timeline history that cannot be read".to_owned() })
}

/// The history file: a line a timeline left, `timeline ⟨tab⟩ LSN of the switch ⟨tab⟩ reason`.
fn parse_history(content: &str, timeline: u32) -> Option<Vec<(Lsn, u32)>> {
    let mut timelines = Vec::new();
    let mut first = Lsn::INVALID;
    for line in content.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = line.split_whitespace();
        timelines.push((first, fields.next()?.parse().ok()?));
        first = fields.next()?.parse().ok()?;
    }
    timelines.push((first, timeline));
    Some(timelines)
}

fn parse<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, SourceError> {
    text.parse().map_err(|_| SourceError::Protocol { what: format!("`{text}` for {what}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_tells_which_timeline_holds_an_lsn() {
        let content = "1\t0/3000000\tno recovery target specified\n\n2\t0/5000000\tbefore 2000-01-01\n";
        let expect = vec![(Lsn::INVALID, 1), (Lsn::new(0x300_0000), 2), (Lsn::new(0x500_0000), 3)];
        assert_eq!(parse_history(content, 3), Some(expect));
        assert_eq!(parse_history("1\tnonsense", 2), None);
    }
}
