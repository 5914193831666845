//! Partitioned tables, published as their root.

use super::super::lab::postgres::Postgres;
use super::super::lab::walgate::Walgate;
use super::{events, loaded, meanwhile, rebuilt};

const SALES: &str = "CREATE TABLE sale (region text, id int, name text, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region); \
                     CREATE TABLE sale_north PARTITION OF sale FOR VALUES IN ('north'); \
                     CREATE TABLE sale_south PARTITION OF sale FOR VALUES IN ('south') PARTITION BY RANGE (id); \
                     CREATE TABLE sale_south_low PARTITION OF sale_south FOR VALUES FROM (0) TO (500); \
                     CREATE TABLE sale_south_high (name text, gone int, region text NOT NULL, note text, id int NOT NULL); \
                     ALTER TABLE sale_south_high DROP gone; \
                     ALTER TABLE sale_south ATTACH PARTITION sale_south_high FOR VALUES FROM (500) TO (100000); \
                     INSERT INTO sale SELECT CASE n % 2 WHEN 0 THEN 'north' ELSE 'south' END, n, 'sale ' || n, repeat('x', n) FROM generate_series(1, 1000) n";

/// Rows change, and move between partitions.
fn churn(round: u32) -> String {
    let id = round * 37 % 1000;
    format!(
        "UPDATE sale SET name = 'round {round}' WHERE id = {id}; \
         UPDATE sale SET region = CASE region WHEN 'north' THEN 'south' ELSE 'north' END WHERE id = {id} + 1; \
         UPDATE sale SET id = id + 10000 WHERE id = {id} + 2; DELETE FROM sale WHERE id = {id} + 3"
    )
}

#[test]
fn a_partitioned_table_is_one_topic_whatever_moves_between_its_leaves_while_it_is_loaded_and_rebuilt() {
    let postgres = Postgres::start();
    postgres.sql(SALES);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "8KiB").prepare();
    meanwhile(&postgres, churn, || {
        walgate.start_again();
        walgate.wait_for_rebuild(1);
    });
    events(&mut walgate, &postgres, "public.sale");
    let change = "UPDATE sale SET region = 'south' WHERE id = (SELECT min(id) FROM sale WHERE region = 'north'); DELETE FROM sale WHERE id = (SELECT max(id) FROM sale)";
    let sent = rebuilt(&mut walgate, &postgres, "public.sale", change);
    assert_eq!(sent.len(), 3 + 2, "only the differences are sent");
    assert_eq!(walgate.events().topics().filter(|topic| topic.contains("sale")).count(), 1);
}

#[test]
fn partitions_attached_and_detached_while_running_come_and_go_with_the_next_rebuild() {
    let postgres = Postgres::start();
    postgres.sql(SALES);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    postgres.sql(
        "CREATE TABLE sale_west (LIKE sale INCLUDING ALL); INSERT INTO sale_west SELECT 'west', n, 'sale' FROM generate_series(1, 20) n",
    );
    postgres.sql("ALTER TABLE sale ATTACH PARTITION sale_west FOR VALUES IN ('west'); ALTER TABLE sale DETACH PARTITION sale_north");
    postgres.sql("INSERT INTO sale VALUES ('west', 100, 'new'); UPDATE sale SET name = 'changed' WHERE region = 'west' AND id = 1");
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.run(&["rebuild", "--yes"]).status.success());
    let after = events(&mut walgate, &postgres, "public.sale").since(&before);
    assert_eq!(after.of("public.sale").len(), 2 + 19 + 2 * 500, "only the differences are sent");
}
