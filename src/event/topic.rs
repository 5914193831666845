//! Which topic a table's events go to. Two tables never share one: the names are mapped without collisions.

/// A topic of this stream.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// At most 249 characters of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Whether its records have keys (tables without a key have none).
    pub keyed: bool,
}
