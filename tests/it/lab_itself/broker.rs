//! The broker of the lab.

use std::time::Instant;

use crate::lab::kafka::Kafka;

#[test]
fn a_killed_broker_keeps_its_topics() {
    let begun = Instant::now();
    let mut kafka = Kafka::start();
    eprintln!("start {:?}", begun.elapsed());
    kafka.create_topic("t", 3, &[("cleanup.policy", "compact")]);
    kafka.kill();
    let begun = Instant::now();
    kafka.restart();
    eprintln!("restart {:?}", begun.elapsed());
    assert_eq!(kafka.partitions("t"), Some(3));
    assert_eq!(kafka.settings("t")["cleanup.policy"], "compact");
    kafka.add_partitions("t", 4);
    kafka.restart();
    assert_eq!(kafka.topics(), ["t"]);
    kafka.delete_topic("t");
    assert_eq!(kafka.partitions("t"), None);
}
