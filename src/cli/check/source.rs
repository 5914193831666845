//! The source, in the order in which a session meets it: connection, server, replication, publication, tables, slot.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::cli::check::server::{self, Server};
use crate::cli::check::{Area, Finding, tables};
use crate::config::{Config, Source};
use crate::event::topic::topic_name;
use crate::postgres::slot::{self, Slot, SlotSeen};
use crate::postgres::sql::Sql;
use crate::postgres::wire::{Purpose, Wire};
use crate::postgres::{SourceError, quote_identifier, system};
use crate::progress::Progress;
use crate::telemetry::Chain;

const APPLICATION_NAME: &str = "walgate check";

/// Adds what is found, and the topics of the published tables to `topics`. `running`: a service of this stream runs, and is who uses the slot;
/// `delivered`: how far it was, where it has delivered before and does not run.
///
/// # Errors
/// The server cannot be reached or asked.
pub(super) async fn look(
    config: &Config,
    running: bool,
    delivered: Option<&Progress>,
    findings: &mut Vec<Finding>,
    topics: &mut Vec<String>,
) -> Result<(), SourceError> {
    let source = &config.source;
    let sql = Sql::connect(&source.postgres, APPLICATION_NAME, source.connect_timeout).await?;
    let server = server::look(&sql, &source.slot).await?;
    findings.extend(server.judge());
    findings.extend(look_at_replication(source, &sql, &server, delivered).await);
    let tables = tables::look(source, &sql, &server, findings).await?;
    topics.extend(tables.iter().map(|(schema, table)| topic_name(&config.sink.topic_prefix, schema, table)));
    let seen = slot::look(&sql, server.version, &source.slot).await?;
    let leave = delivered.map(|delivered| leave_to_rebuild(config, delivered));
    findings.push(Expected { slot: &source.slot, create: source.create, database: &server.database, running, leave }.judge(&seen));
    Ok(())
}

/// Only a connection proves the right: services that rent out PostgreSQL give it by other means than the attribute.
async fn look_at_replication(source: &Source, sql: &Sql, server: &Server, delivered: Option<&Progress>) -> Vec<Finding> {
    let connecting = Wire::connect(&source.postgres, Purpose::Replication, APPLICATION_NAME, source.connect_timeout).await;
    let identified = match connecting {
        Ok(mut wire) => system::look(sql, &mut wire).await,
        Err(error) => Err(error),
    };
    let finding = match identified {
        Ok(system) => {
            let may = Finding::ok(Area::Source, format!("role `{}` may replicate, timeline {}", server.role, system.timeline));
            let found = system.system_identifier.to_string();
            let other = delivered.filter(|delivered| delivered.system_identifier != found);
            let other = other.map(|delivered| {
                let what = format!("another database system (`{found}`) than the stream's (`{}`)", delivered.system_identifier);
                Finding::fault(Area::Source, what).mended_by("correct `source.url`; a new stream for another system wants another `stream`")
            });
            return std::iter::once(may).chain(other).collect();
        }
        Err(error) if server.may_replicate => Finding::fault(Area::Source, format!("no replication connection: {}", Chain(&error))),
        Err(_) => Finding::fault(Area::Source, format!("role `{}` may not replicate", server.role))
            .mended_by(format!("ALTER ROLE {} REPLICATION", server.quoted_role())),
    };
    vec![finding]
}

/// Whether a rebuild that is due begins by itself; the error: why not.
fn leave_to_rebuild(config: &Config, delivered: &Progress) -> Result<(), &'static str> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let lately = delivered.automatic_rebuilds.iter().filter(|begun| (0..3_600).contains(&(now - **begun))).count();
    if !config.rebuild.automatic {
        Err("`rebuild.automatic = false` leaves it to you: `walgate rebuild`")
    } else if lately >= config.rebuild.max_per_hour as usize {
        Err("`rebuild.max_per_hour` is used up: find out why the slot goes, then `walgate rebuild`")
    } else {
        Ok(())
    }
}

/// What the slot is seen against.
struct Expected<'s> {
    slot: &'s str,
    /// walgate may make it.
    create: bool,
    database: &'s str,
    /// A service of this stream runs, and is who uses the slot.
    running: bool,
    /// Where the stream has delivered before: whether it rebuilds by itself.
    leave: Option<Result<(), &'static str>>,
}

impl Expected<'_> {
    fn judge(&self, seen: &SlotSeen) -> Finding {
        let name = self.slot;
        let slot = match seen {
            SlotSeen::Missing if self.create && self.leave.is_some() => {
                return self.rebuild_is_due(format!("the slot `{name}` is gone: a rebuild is due"));
            }
            SlotSeen::Missing if self.create => return Finding::ok(Area::Source, format!("the slot `{name}` will be made")),
            SlotSeen::Missing => {
                return Finding::fault(Area::Source, format!("the slot `{name}` does not exist"))
                    .mended_by("set `source.create = true`: only walgate can make it with the snapshot that it needs");
            }
            SlotSeen::Present(slot) => slot,
        };
        if let Some(why) = not_ours(slot, self.database) {
            return Finding::fault(Area::Source, format!("the slot `{name}` {why}")).mended_by("set `source.slot` to another name");
        }
        if let Some(why) = slot.lost() {
            return self.rebuild_is_due(format!("the slot `{name}` is lost (`{why}`): a rebuild is due"));
        }
        match slot.active_pid {
            Some(pid) if !self.running => Finding::warning(
                Area::Source,
                format!("the slot `{name}` is in use by process {pid} of the server, not by a service of this folder"),
            )
            .mended_by(format!("stop the other reader; or SELECT pg_terminate_backend({pid})")),
            _ if slot.wal_status == "unreserved" => {
                Finding::warning(Area::Source, format!("the slot `{name}` is about to be lost: it keeps {} bytes of log", slot.kept_bytes))
                    .mended_by("ALTER SYSTEM SET max_slot_wal_keep_size = …; SELECT pg_reload_conf(); -- more than that")
            }
            _ => Finding::ok(Area::Source, format!("the slot `{name}` is {} and keeps {} bytes of log", slot.wal_status, slot.kept_bytes)),
        }
    }
}

impl Expected<'_> {
    fn rebuild_is_due(&self, what: String) -> Finding {
        match self.leave {
            Some(Err(why)) => Finding::fault(Area::Source, what).mended_by(why),
            _ => Finding::warning(Area::Source, what).mended_by("`walgate run` makes the slot again and sends the differences"),
        }
    }
}

fn not_ours(slot: &Slot, database: &str) -> Option<String> {
    if slot.plugin.is_empty() {
        Some("is a physical one".to_owned())
    } else if slot.plugin != "pgoutput" {
        Some(format!("has the output plugin {}", quote_identifier(&slot.plugin)))
    } else if slot.database != database {
        Some(format!("is of database `{}`", slot.database))
    } else if slot.temporary {
        Some("is a temporary one of another session".to_owned())
    } else if slot.synced {
        Some("is a standby's copy of the primary's".to_owned())
    } else if slot.two_phase {
        Some("decodes prepared transactions (`two_phase`)".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Severity;

    fn slot() -> Slot {
        Slot {
            plugin: "pgoutput".to_owned(),
            database: "shop".to_owned(),
            temporary: false,
            synced: false,
            two_phase: false,
            confirmed_flush_lsn: None,
            restart_lsn: None,
            wal_status: "reserved".to_owned(),
            safe_wal_size: None,
            invalidation_reason: None,
            active_pid: None,
            kept_bytes: 10,
            lag_bytes: 0,
        }
    }

    #[test]
    fn a_slot_is_usable_lost_or_somebody_elses() {
        let check = |seen: SlotSeen, create: bool, running: bool, severity: Severity, what: &str| {
            let finding = Expected { slot: "walgate_shop", create, database: "shop", running, leave: None }.judge(&seen);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.what.contains(what), "{finding:?}");
        };
        let present = SlotSeen::Present;
        check(SlotSeen::Missing, true, false, Severity::Ok, "will be made");
        check(SlotSeen::Missing, false, false, Severity::Fault, "does not exist");
        check(present(slot()), false, false, Severity::Ok, "reserved");
        check(present(Slot { active_pid: Some(7), ..slot() }), true, true, Severity::Ok, "reserved");
        check(present(Slot { active_pid: Some(7), ..slot() }), true, false, Severity::Warning, "process 7");
        check(present(Slot { wal_status: "lost".to_owned(), ..slot() }), true, false, Severity::Warning, "`wal_removed`");
        check(present(Slot { wal_status: "unreserved".to_owned(), ..slot() }), true, true, Severity::Warning, "about to be lost");
        check(present(Slot { plugin: "wal2json".to_owned(), ..slot() }), true, false, Severity::Fault, "wal2json");
        check(present(Slot { plugin: String::new(), ..slot() }), true, false, Severity::Fault, "physical");
        check(present(Slot { database: "other".to_owned(), ..slot() }), true, false, Severity::Fault, "`other`");
        let due =
            |leave| Expected { slot: "s", create: true, database: "shop", running: false, leave: Some(leave) }.judge(&SlotSeen::Missing);
        assert_eq!(due(Ok(())).severity, Severity::Warning);
        assert_eq!(due(Err("it is left to you")).severity, Severity::Fault);
    }
}
