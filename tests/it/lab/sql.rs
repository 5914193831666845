//! A blocking connection to PostgreSQL: statements in, rows of text out.

use std::ops::Deref;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// One connection with one backend behind it.
pub(crate) struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    pub(crate) fn open(url: &str) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// Runs one or more statements separated by semicolons and returns the rows of all.
    pub(crate) fn run(&self, statements: &str) -> Result<Rows, Error> {
        let messages = self.runtime.block_on(self.client.simple_query(statements))?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect()),
            _ => None,
        };
        Ok(Rows(messages.into_iter().filter_map(row).collect()))
    }

    /// As [`Session::run`], for statements that have to succeed.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> Rows {
        self.run(statements).unwrap_or_else(|error| panic!("`{statements}` fails: {}", describe(&error)))
    }
}

/// What the server said, which `Display` leaves out.
pub(crate) fn describe(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Rows of text; `None` is NULL.
#[derive(Debug)]
pub(crate) struct Rows(Vec<Vec<Option<String>>>);

impl Rows {
    /// The only value of the only row; panics where there is another number of them, or NULL.
    #[track_caller]
    pub(crate) fn one(&self) -> &str {
        self.maybe().expect("one value that is not NULL")
    }

    /// The only value of the only row; `None` where there is no row, or NULL.
    #[track_caller]
    pub(crate) fn maybe(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => None,
            [row] if row.len() == 1 => row.first()?.as_deref(),
            rows => panic!("expected one value, found {rows:?}"),
        }
    }
}

impl Deref for Rows {
    type Target = [Vec<Option<String>>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
