//! Values: one representation wherever they are read, and PostgreSQL's own value when it is read back.

mod back;
mod encodings;
mod keys;
mod random;
mod settings;
mod special;
mod thrice;

use self::random::columns;
use self::special::EXTENSIONS;
use self::thrice::Column;
use super::lab::postgres::Postgres;
use super::lab::random::{Random, seed};
use super::lab::share;

const ROWS: u32 = 20;

#[test]
fn special_values_look_as_promised_and_come_back() {
    let postgres = Postgres::start();
    postgres.sql(EXTENSIONS);
    special::check(&postgres, "shop");
}

#[test]
fn random_values_of_random_types_look_alike_wherever_they_are_read_and_come_back() {
    let mut random = Random::seeded(seed());
    for _ in 0..share(3) {
        let postgres = Postgres::start();
        postgres.sql(EXTENSIONS);
        let (types, columns) = columns(&mut random);
        postgres.sql(&types);
        let rows: Vec<Vec<String>> = (0..ROWS).map(|_| columns.iter().map(|column| column.value(&mut random)).collect()).collect();
        let columns: Vec<Column> = columns.into_iter().map(|column| column.shape).collect();
        let shown = thrice::read(&postgres, "shop", &columns, &rows);
        back::check(&postgres.session(), &columns, &shown);
    }
}
