//! A second broker of the same cluster, for what moves between brokers.

use std::fs;
use std::process::{Child, Stdio};

use super::super::{port, wait};
use super::{Kafka, PATIENCE, Running, ended, script};

/// Serves until it is dropped.
pub(crate) struct Neighbour(#[expect(dead_code, reason = "is killed with it")] Running);

impl Kafka {
    /// Adds a broker, number 2, which has no partitions yet.
    pub(crate) fn neighbour(&self) -> Neighbour {
        let data = self.path("neighbour");
        fs::create_dir(&data).expect("the folder is writable");
        let properties = fs::read_to_string(self.path("data").join("meta.properties")).expect("the first broker has been started");
        let own = properties.lines().filter(|line| !line.starts_with("directory.id"));
        let own: String =
            own.map(|line| if line.starts_with("node.id") { "node.id=2\n".to_owned() } else { format!("{line}\n") }).collect();
        fs::write(data.join("meta.properties"), own).expect("the folder is writable");
        let port = port::free();
        let listener = format!("DIRECT://127.0.0.1:{port}");
        let mut command = std::process::Command::new(script("broker"));
        command.arg(&data).args([port.to_string(), self.controller_port.to_string()]);
        for property in ["node.id=2", "process.roles=broker", &format!("listeners={listener}"), &format!("advertised.listeners={listener}")]
        {
            command.args(["--override", property]);
        }
        command.stdin(Stdio::null()).stdout(self.log_file()).stderr(self.log_file());
        let mut broker: Child = command.spawn().expect("a script can be run");
        wait::until(PATIENCE, "the second broker is one of the cluster", || {
            if let Some(status) = ended(&mut broker) {
                panic!("the second broker ended with {status}: {}", self.log());
            }
            self.broker_count() == 2
        });
        Neighbour(Running(broker))
    }

    /// Moves the only partition of a topic to a broker, and returns once that is its leader.
    #[track_caller]
    pub(crate) fn move_to(&self, topic: &str, broker: i32) {
        let plan = self.path("plan");
        let partition = format!("{{\"topic\":\"{topic}\",\"partition\":0,\"replicas\":[{broker}]}}");
        fs::write(&plan, format!("{{\"version\":1,\"partitions\":[{partition}]}}")).expect("the folder is writable");
        let plan = plan.to_str().expect("a path of the lab is UTF-8");
        self.tool("reassign.ReassignPartitionsCommand", &["--execute", "--reassignment-json-file", plan]);
        wait::until(PATIENCE, &format!("broker {broker} leads `{topic}`"), || self.leader(topic) == Some(broker));
    }
}
