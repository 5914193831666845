//! Whose turn it is: the stream's advisory lock and its slot are had by one instance at a time.

use std::time::{Duration, Instant};

use crate::pipeline::error::SessionError;
use crate::pipeline::session::Service;
use crate::postgres::slot::SlotSeen;
use crate::postgres::sql::Sql;
use crate::postgres::{quote_literal, slot};

/// Between two looks at whether the one that has them has taken the stream over from this instance.
const SUCCESSOR_INTERVAL: Duration = Duration::from_secs(5);
/// Between two looks at a slot or lock that another connection has.
const IN_USE_PAUSE: Duration = Duration::from_millis(500);

impl Service {
    /// Ends the connections of other instances of this stream, which are shut out of the sink.
    pub(super) async fn end_other_instances(&self, sql: &Sql, own_pid: i32) -> Result<(), SessionError> {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid))::text AS ended FROM pg_stat_activity \
             WHERE application_name = {} AND datname = current_database() AND pid NOT IN (pg_backend_pid(), {own_pid})",
            quote_literal(&format!("walgate {}", self.config.stream))
        );
        let ended = sql.row("end the connections of another instance", &statement).await?.text("ended")?.to_owned();
        tracing::warn!(ended, "taken over: connections of other instances are ended");
        Ok(())
    }

    /// The stream's advisory lock, held by this connection, then a slot that nobody reads. They are waited for as long as
    /// it takes: another instance stands by like this.
    pub(super) async fn wait_for_lock_and_slot(&mut self, sql: &Sql, version: u32) -> Result<(), SessionError> {
        let mut looked = None::<Instant>;
        while let Some(what) = self.who_has_the_stream(sql, version).await? {
            self.wait(&what);
            // Whoever has it may have taken it over from us.
            if looked.is_none_or(|looked| looked.elapsed() > SUCCESSOR_INTERVAL) {
                self.with_sink(|sink| sink.look_for_successor()).await??;
                looked = Some(Instant::now());
            }
            tokio::time::sleep(IN_USE_PAUSE).await;
        }
        Ok(())
    }

    /// `None`: we have the lock, and nobody reads the slot.
    async fn who_has_the_stream(&self, sql: &Sql, version: u32) -> Result<Option<String>, SessionError> {
        let lock = format!(
            "SELECT pg_try_advisory_lock(hashtextextended({}, 0)) AS locked",
            quote_literal(&format!("walgate {}", self.config.source.slot))
        );
        if !sql.row("take the stream's lock", &lock).await?.is_true("locked")? {
            return Ok(Some("another instance that has the stream's lock".to_owned()));
        }
        Ok(match slot::look(sql, version, &self.config.source.slot).await? {
            SlotSeen::Present(slot) => slot.active_pid.map(|pid| format!("the slot, in use by process {pid}")),
            SlotSeen::Missing => None,
        })
    }
}
