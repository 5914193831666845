//! `walgate rebuild`: asks the running service, and shows how far it is.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value as Json;

use crate::admin::control::{ControlError, Request, ask};
use crate::config::Config;
use crate::exit::Exit;

/// Between two looks at the service.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn execute(config: &Config, tables: &[String], resend: bool, yes: bool, detach: bool) -> anyhow::Result<Exit> {
    let mut errors = std::io::stderr().lock();
    if resend && !yes && std::io::stdin().is_terminal() {
        write!(
            errors,
            "Every row of {} is sent again. Go on? [y/N] ",
            if tables.is_empty() { "all tables".to_owned() } else { tables.join(", ") }
        )?;
        errors.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            return Ok(Exit::Success);
        }
    }
    drop(errors);
    let answer = match ask(&config.store.directory, &Request::Rebuild { tables: tables.to_vec(), resend }) {
        Ok(answer) => answer,
        Err(ControlError::NotRunning) => {
            super::complain(
                "no service runs for this stream: start `walgate run`, which rebuilds what it finds lost, and ask again for more",
            );
            return Ok(Exit::Usage);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(why) = answer.get("error").and_then(Json::as_str) {
        super::complain(why);
        return Ok(Exit::Refused);
    }
    let id = answer.get("id").and_then(Json::as_u64).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "rebuild {id} begun")?;
    if detach {
        return Ok(Exit::Success);
    }
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} blocks {elapsed_precise} {msg}")?);
    let mut counts = String::new();
    loop {
        let status = ask(&config.store.directory, &Request::Status)?;
        let Some(rebuild) = status.get("rebuild").filter(|rebuild| rebuild.get("id").and_then(Json::as_u64) == Some(id)) else { break };
        let sum = |name: &str| -> u64 {
            let tables = rebuild.get("tables").and_then(Json::as_object);
            tables.into_iter().flat_map(|tables| tables.values()).filter_map(|table| table.get(name).and_then(Json::as_u64)).sum()
        };
        counts = format!(
            "rows {} read {} updated {} deleted {} equal {}",
            sum("rows"),
            sum("read"),
            sum("updated"),
            sum("deleted"),
            sum("equal")
        );
        bar.set_length(sum("blocks"));
        bar.set_position(sum("blocks_done"));
        bar.set_message(counts.clone());
        std::thread::sleep(LOOK);
    }
    bar.finish_and_clear();
    writeln!(out, "rebuild {id} ended {counts}")?;
    Ok(Exit::Success)
}
