//! What the server says of a table before its first change, and again after every change of its shape.
//!
//! The columns stand in the order in which every tuple of the table gives its values.

use super::reader::{DecodeError, Reader};
use crate::lsn::Oid;

/// A Relation message (PostgreSQL manual, "Logical Replication Message Formats").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// `pg_class.oid`.
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub identity: ReplicaIdentity,
    pub columns: Vec<RelationColumn>,
}

/// `pg_class.relreplident`: which columns an old tuple has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The primary key, if there is one.
    Default,
    /// None: the server refuses updates and deletes.
    Nothing,
    /// All columns.
    Full,
    /// The columns of a chosen index.
    Index,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationColumn {
    pub name: String,
    /// `pg_type.oid`, before domains are followed.
    pub type_oid: Oid,
    /// `pg_attribute.atttypmod`; -1: none.
    pub typmod: i32,
    /// Belongs to the replica identity; under [`ReplicaIdentity::Full`] every column does.
    pub in_identity: bool,
}

/// Flag of a column that belongs to the replica identity.
const IN_IDENTITY: u8 = 1;

/// Bytes of a column whose name is empty: flags, zero byte, type, typmod.
const COLUMN_BYTES_MIN: usize = 1 + 1 + 4 + 4;

impl Relation {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let oid = reader.oid("relation OID")?;
        let schema = schema(reader)?.to_owned();
        let name = reader.name("relation name")?.to_owned();
        let identity = ReplicaIdentity::read(reader)?;
        let columns = (0..reader.count_of_16_bits("column count", COLUMN_BYTES_MIN)?)
            .map(|_| RelationColumn::read(reader))
            .collect::<Result<_, _>>()?;
        Ok(Self { oid, schema, name, identity, columns })
    }
}

impl ReplicaIdentity {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let field = "replica identity";
        match reader.u8(field)? {
            b'd' => Ok(Self::Default),
            b'n' => Ok(Self::Nothing),
            b'f' => Ok(Self::Full),
            b'i' => Ok(Self::Index),
            found => Err(DecodeError::Unexpected { tag: reader.tag(), field, found, expected: "`d`, `n`, `f` or `i`" }),
        }
    }
}

impl RelationColumn {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let in_identity = reader.u8("column flags")? & IN_IDENTITY != 0;
        let name = reader.name("column name")?.to_owned();
        Ok(Self { name, type_oid: reader.oid("column type")?, typmod: reader.i32("column typmod")?, in_identity })
    }
}

/// The server leaves the name of `pg_catalog` empty.
pub(super) fn schema<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    reader.name("schema name").map(|name| if name.is_empty() { "pg_catalog" } else { name })
}
