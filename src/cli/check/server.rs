//! What is asked of the server as a whole: version, settings, and the role that walgate comes as.

use crate::cli::check::{Area, Finding};
use crate::postgres::sql::Sql;
use crate::postgres::{SourceError, quote_identifier, quote_literal};

/// The first minor release of each version without a known fault that loses changes or slots.
const GOOD_MINORS: [(u32, u32); 5] = [(14, 19), (15, 14), (16, 10), (17, 6), (18, 0)];

/// The server and the role, as an SQL connection sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// `server_version_num`.
    pub(super) version: u32,
    pub(super) database: String,
    pub(super) role: String,
    pub(super) may_replicate: bool,
    /// CREATE on the database, which CREATE PUBLICATION asks for.
    pub(super) may_create: bool,
    in_recovery: bool,
    wal_level: String,
    slots: Room,
    wal_senders: Room,
    /// `max_slot_wal_keep_size`.
    slot_wal_keep: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    used: u64,
    max: u64,
}

/// Looks at the server. `slot` is the stream's own: it needs no room where it exists.
pub(super) async fn look(sql: &Sql, slot: &str) -> Result<Server, SourceError> {
    let statement = format!(
        "SELECT current_setting('server_version_num') AS version, current_database() AS database, current_user AS role, \
         r.rolreplication OR r.rolsuper AS may_replicate, has_database_privilege(current_database(), 'CREATE') AS may_create, \
         pg_is_in_recovery() AS in_recovery, current_setting('wal_level') AS wal_level, \
         (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> {slot}) AS slots, current_setting('max_replication_slots') AS slots_max, \
         (SELECT count(*) FROM pg_stat_replication s WHERE NOT EXISTS \
           (SELECT FROM pg_replication_slots o WHERE o.active_pid = s.pid AND o.slot_name = {slot})) AS wal_senders, \
         current_setting('max_wal_senders') AS wal_senders_max, current_setting('max_slot_wal_keep_size') AS slot_wal_keep \
         FROM pg_roles r WHERE r.rolname = current_user",
        slot = quote_literal(slot)
    );
    let row = sql.row("look at the server", &statement).await?;
    Ok(Server {
        version: row.parsed("version")?,
        database: row.text("database")?.to_owned(),
        role: row.text("role")?.to_owned(),
        may_replicate: row.is_true("may_replicate")?,
        may_create: row.is_true("may_create")?,
        in_recovery: row.is_true("in_recovery")?,
        wal_level: row.text("wal_level")?.to_owned(),
        slots: Room { used: row.parsed("slots")?, max: row.parsed("slots_max")? },
        wal_senders: Room { used: row.parsed("wal_senders")?, max: row.parsed("wal_senders_max")? },
        slot_wal_keep: row.text("slot_wal_keep")?.to_owned(),
    })
}

impl Server {
    /// The role as SQL names it.
    pub(super) fn quoted_role(&self) -> String {
        quote_identifier(&self.role)
    }

    pub(super) fn judge(&self) -> Vec<Finding> {
        let mut findings = vec![self.judge_version()];
        if self.in_recovery {
            findings.push(Finding::fault(Area::Source, "the server is a standby").mended_by("set `source.url` to the primary"));
        }
        if self.wal_level != "logical" {
            findings.push(
                Finding::fault(Area::Source, format!("`wal_level` is `{}`, and has to be `logical`", self.wal_level))
                    .mended_by("ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL"),
            );
        }
        findings.extend(self.slots.judge("max_replication_slots", "replication slots"));
        findings.extend(self.wal_senders.judge("max_wal_senders", "WAL senders"));
        if self.slot_wal_keep == "-1" {
            findings.push(
                Finding::warning(
                    Area::Source,
                    "`max_slot_wal_keep_size` is unlimited: while walgate is down, the log can fill the server's disk",
                )
                .mended_by("ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); -- what the disk can spare"),
            );
        }
        findings
    }

    fn judge_version(&self) -> Finding {
        let (major, minor) = (self.version / 10_000, self.version % 10_000);
        match GOOD_MINORS.iter().find(|(known, _)| *known == major) {
            None => Finding::fault(Area::Source, format!("PostgreSQL {major} is not supported: 14 to 18 are")),
            Some((_, good)) if minor < *good => Finding::warning(
                Area::Source,
                format!("PostgreSQL {major}.{minor} has faults that can lose changes or slots, mended in {major}.{good}"),
            )
            .mended_by(format!("install the latest minor release of PostgreSQL {major}")),
            Some(_) => Finding::ok(Area::Source, format!("PostgreSQL {major}.{minor} answers, database `{}`", self.database)),
        }
    }
}

impl Room {
    fn judge(self, setting: &str, what: &str) -> Option<Finding> {
        (self.used >= self.max).then(|| {
            Finding::fault(Area::Source, format!("all {} {what} are in use", self.max))
                .mended_by(format!("ALTER SYSTEM SET {setting} = {}; then restart PostgreSQL", self.max.max(self.used) + 4))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Severity;

    fn server() -> Server {
        Server {
            version: 150_014,
            database: "shop".to_owned(),
            role: "walgate".to_owned(),
            may_replicate: true,
            may_create: true,
            in_recovery: false,
            wal_level: "logical".to_owned(),
            slots: Room { used: 2, max: 10 },
            wal_senders: Room { used: 0, max: 10 },
            slot_wal_keep: "50GB".to_owned(),
        }
    }

    #[test]
    fn each_fault_of_a_server_is_named_with_its_remedy() {
        assert_eq!(server().judge(), [Finding::ok(Area::Source, "PostgreSQL 15.14 answers, database `shop`")]);
        let check = |server: Server, severity: Severity, what: &str, statement: &str| {
            let worst = server.judge().into_iter().find(|finding| finding.severity != Severity::Ok).unwrap();
            assert!(worst.what.contains(what), "{worst:?}");
            assert!(worst.statement.as_deref().unwrap_or_default().contains(statement), "{worst:?}");
            assert_eq!(worst.severity, severity);
        };
        check(Server { version: 130_023, ..server() }, Severity::Fault, "PostgreSQL 13 is not supported", "");
        check(Server { version: 150_013, ..server() }, Severity::Warning, "15.13", "latest minor release of PostgreSQL 15");
        check(Server { in_recovery: true, ..server() }, Severity::Fault, "standby", "primary");
        check(Server { wal_level: "replica".to_owned(), ..server() }, Severity::Fault, "`replica`", "wal_level = 'logical'");
        check(
            Server { slots: Room { used: 4, max: 4 }, ..server() },
            Severity::Fault,
            "all 4 replication slots",
            "max_replication_slots = 8",
        );
        check(Server { wal_senders: Room { used: 0, max: 0 }, ..server() }, Severity::Fault, "all 0 WAL senders", "max_wal_senders = 4");
        check(Server { slot_wal_keep: "-1".to_owned(), ..server() }, Severity::Warning, "unlimited", "max_slot_wal_keep_size");
    }
}
