//! The tables that the stream has named, each with its encoder plan and its place in the row index.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::plan::TablePlan;
use crate::lsn::{Lsn, Oid};
use crate::pgoutput::relation::Relation;
use crate::splice::snapshot::Snapshot;
use crate::store::index::TopicNumber;

/// A table as the stream described it last.
#[derive(Debug)]
pub struct Table {
    pub plan: TablePlan,
    /// Its rows in the index; `None` where none are kept (no key, or never read).
    pub indexed: Option<Indexed>,
    /// Transactions already contained in a reading of the whole table.
    pub skip: Option<Skip>,
    /// It was dropped since: it will not be read any more.
    pub is_gone: bool,
}

/// How streamed events enter the row index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    pub number: TopicNumber,
    /// Given to every row touched.
    pub epoch: u64,
    /// The index is being completed: a row that it does not have is one that subscribers hold all the same.
    pub absent_is_complete: bool,
}

/// For a table without a key, read in one piece.
#[derive(Clone, Debug)]
pub struct Skip {
    pub snapshot: Snapshot,
    /// From here on nothing is skipped.
    pub until: Lsn,
}

/// By relation OID.
#[derive(Debug, Default)]
pub struct Tables {
    tables: HashMap<Oid, Arc<Table>>,
}

impl Tables {
    #[must_use]
    pub fn get(&self, oid: Oid) -> Option<&Arc<Table>> {
        self.tables.get(&oid)
    }

    pub fn insert(&mut self, table: Table) {
        self.tables.insert(table.plan.relation().oid, Arc::new(table));
    }

    /// Forgets the tables of a topic: their next Relation, or [`Tables::insert`], describes them anew.
    pub fn take_topic(&mut self, topic: &str) -> Vec<Arc<Table>> {
        let oids: Vec<Oid> = self.tables.iter().filter(|(_, table)| table.plan.topic().name == topic).map(|(oid, _)| *oid).collect();
        oids.iter().filter_map(|oid| self.tables.remove(oid)).collect()
    }
}

/// Whether two descriptions give rows of the same columns. Flags of the identity do not matter.
#[must_use]
pub fn same_shape(one: &Relation, other: &Relation) -> bool {
    let columns = |relation: &Relation| {
        relation.columns.iter().map(|column| (column.name.clone(), column.type_oid, column.typmod)).collect::<Vec<_>>()
    };
    one.schema == other.schema && one.name == other.name && one.identity == other.identity && columns(one) == columns(other)
}
