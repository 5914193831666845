//! `walgate rebuild`: asks the service for one, and shows how far it is until it is over.
//!
//! One process alone may write to the sink and the store. Where no service runs, this one is it until the rebuild has
//! ended, and asks itself: there is one way.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value as Json;
use tokio::sync::oneshot;

use super::run;
use crate::admin::control::{Command, ControlError, Request, Verdict, ask};
use crate::config::Config;
use crate::exit::Exit;

/// Between two looks at the service.
const LOOK: Duration = Duration::from_millis(200);

/// Between two lines where there is no terminal.
const LINE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug)]
struct Wanted {
    tables: Vec<String>,
    resend: bool,
    /// The end is not waited for.
    detach: bool,
}

pub(super) fn execute(config: Config, tables: Vec<String>, resend: bool, yes: bool, detach: bool) -> anyhow::Result<Exit> {
    if resend && !yes && !std::io::stdin().is_terminal() {
        super::complain("`--resend` sends every row again: nobody can be asked here, so say `--yes`");
        return Ok(Exit::Usage);
    }
    if resend && !yes && !confirmed(&tables)? {
        super::complain("nothing is sent");
        return Ok(Exit::Usage);
    }
    let wanted = Wanted { tables, resend, detach };
    match ask(&config.store.directory, &Request::Status) {
        Ok(_) => beside(&config, &wanted),
        Err(ControlError::NotRunning) if detach => {
            super::complain("no service runs for this stream: leave out `--detach`, or start `walgate run` and repeat");
            Ok(Exit::Refused)
        }
        Err(ControlError::NotRunning) => alone(config, wanted),
        Err(error) => Err(error.into()),
    }
}

fn alone(config: Config, wanted: Wanted) -> anyhow::Result<Exit> {
    let asking = config.clone();
    run::execute_for_rebuild(config, |commands| async {
        tokio::task::spawn_blocking(move || {
            until_accepted(&asking, &wanted, || {
                // A session that ends before it takes the request up is followed by another.
                loop {
                    let (reply, replied) = oneshot::channel();
                    commands.blocking_send(Command { tables: wanted.tables.clone(), resend: wanted.resend, reply })?;
                    if let Ok(verdict) = replied.blocking_recv() {
                        return Ok(verdict);
                    }
                }
            })
        })
        .await?
    })
}

fn beside(config: &Config, wanted: &Wanted) -> anyhow::Result<Exit> {
    until_accepted(config, wanted, || {
        let answer = ask(&config.store.directory, &Request::Rebuild { tables: wanted.tables.clone(), resend: wanted.resend })?;
        match answer.get("error").and_then(Json::as_str) {
            Some(error) => Ok(Verdict::Refused { why: error.to_owned() }),
            None => Ok(serde_json::from_value(answer)?),
        }
    })
}

/// One that has to end before is waited for.
fn until_accepted(config: &Config, wanted: &Wanted, mut ask: impl FnMut() -> anyhow::Result<Verdict>) -> anyhow::Result<Exit> {
    loop {
        match ask()? {
            Verdict::Accepted { id } => {
                writeln!(std::io::stdout().lock(), "rebuild {id} begun")?;
                return if wanted.detach { Ok(Exit::Success) } else { follow(config, id) };
            }
            Verdict::Refused { why } => {
                super::complain(&why);
                return Ok(Exit::Refused);
            }
            Verdict::After { id, reason } => {
                super::complain(&format!("rebuild {id} ({reason}) is under way and has to end before"));
                let exit = if wanted.detach { Exit::Refused } else { follow(config, id)? };
                if exit != Exit::Success {
                    return Ok(exit);
                }
            }
        }
    }
}

/// A service that starts, or waits for its source, shows no rebuild although it may have to go on with one.
fn streams(status: &Json) -> bool {
    ["loading", "streaming", "rebuilding"].map(Some).contains(&status.get("state").and_then(Json::as_str))
}

fn confirmed(tables: &[String]) -> std::io::Result<bool> {
    let what = if tables.is_empty() { "all tables".to_owned() } else { tables.join(", ") };
    let mut errors = std::io::stderr().lock();
    write!(errors, "Every row of {what} is sent again. Go on? [y/N] ")?;
    errors.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Until the service shows no such rebuild any more. It goes on without us, and across restarts of the service.
fn follow(config: &Config, id: u64) -> anyhow::Result<Exit> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} blocks {elapsed_precise} {msg}")?);
    let mut line_due = Instant::now() + LINE;
    let status = loop {
        let status = match ask(&config.store.directory, &Request::Status) {
            Ok(status) => status,
            Err(ControlError::NotRunning | ControlError::NoAnswer) => {
                bar.abandon();
                super::complain(&format!("the service ended before rebuild {id} did: the next `walgate run` goes on with it"));
                return Ok(Exit::Refused);
            }
            Err(error) => return Err(error.into()),
        };
        match status.get("rebuild").filter(|rebuild| is(rebuild, id)) {
            None if streams(&status) => break status,
            None => {}
            Some(rebuild) => {
                let (done, blocks) = (sum(rebuild, "blocks_done"), sum(rebuild, "blocks"));
                bar.set_length(blocks);
                bar.set_position(done);
                bar.set_message(counts(rebuild));
                if bar.is_hidden() && Instant::now() >= line_due {
                    line_due = Instant::now() + LINE;
                    writeln!(std::io::stderr().lock(), "rebuild {id}: {done} of {blocks} blocks, {}", counts(rebuild))?;
                }
            }
        }
        std::thread::sleep(LOOK);
    };
    bar.finish_and_clear();
    if ![status.get("rebuild"), status.get("last_rebuild")]
        .into_iter()
        .flatten()
        .any(|later| later.get("id").and_then(Json::as_u64) >= Some(id))
    {
        super::complain(&format!("the service knows nothing of rebuild {id}: repeat it"));
        return Ok(Exit::Refused);
    }
    // Where a later one has read the same tables, their counts are not known any more.
    let counted = status.get("last_rebuild").filter(|ended| is(ended, id)).map(|ended| format!(": {}", counts(ended))).unwrap_or_default();
    writeln!(std::io::stdout().lock(), "rebuild {id} ended{counted}")?;
    Ok(Exit::Success)
}

fn is(rebuild: &Json, id: u64) -> bool {
    rebuild.get("id").and_then(Json::as_u64) == Some(id)
}

/// Over all tables.
fn sum(rebuild: &Json, name: &str) -> u64 {
    let tables = rebuild.get("tables").and_then(Json::as_object);
    tables.into_iter().flat_map(|tables| tables.values()).filter_map(|table| table.get(name).and_then(Json::as_u64)).sum()
}

fn counts(rebuild: &Json) -> String {
    ["rows", "read", "updated", "deleted", "equal", "left_to_stream"]
        .map(|name| format!("{} {}", name.replace('_', " "), sum(rebuild, name)))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_all_tables() {
        let table = |rows: u64| serde_json::json!({ "step": "done", "rows": rows, "read": 1, "updated": 0, "deleted": 2, "equal": rows - 1, "left_to_stream": 0 });
        let rebuild = serde_json::json!({ "id": 7, "tables": { "a": table(10), "b": table(5) } });
        assert_eq!(counts(&rebuild), "rows 15, read 2, updated 0, deleted 4, equal 13, left to stream 0");
        assert!(is(&rebuild, 7) && !is(&rebuild, 8) && !is(&Json::Null, 7));
    }
}
