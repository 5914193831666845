//! Opening the state folder: its lock, its format, and whose it is.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rocksdb::{DB, IteratorMode, WriteBatch};

use crate::store::family::{self, Family};
use crate::store::{FORMAT, Stamp, Store, StoreError, Sync};

const FORMAT_KEY: &[u8] = b"format";
const STREAM_KEY: &[u8] = b"stream";

/// The index holds the keys of rows: nobody else may look.
const FOLDER_MODE: u32 = 0o700;

/// A state folder that no other process can use as long as this is held.
#[derive(Debug)]
pub struct Claim {
    lock: FolderLock,
    directory: PathBuf,
}

impl Claim {
    /// Makes the folder if there is none, and locks it.
    ///
    /// # Errors
    /// The folder cannot be used, or is in use.
    pub fn of(directory: &Path) -> Result<Self, StoreError> {
        make_private(directory)?;
        Ok(Self { lock: lock(directory)?, directory: directory.to_owned() })
    }
}

impl Store {
    /// Opens the store of a stream, and makes it if there is none. One process at a time.
    ///
    /// # Errors
    /// As [`Claim::of`] and [`Store::open_claimed`].
    pub fn open(directory: &Path, stamp: &Stamp) -> Result<Self, StoreError> {
        Self::open_claimed(Claim::of(directory)?, stamp)
    }

    /// As [`Store::open`], in a folder that is claimed already. Takes its time where a log has to be read back.
    ///
    /// # Errors
    /// It belongs to another stream, has another format, or is damaged.
    pub fn open_claimed(claim: Claim, stamp: &Stamp) -> Result<Self, StoreError> {
        let Claim { lock, directory } = claim;
        let directory = directory.as_path();
        let mut options = family::database_options();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        if exists(directory) {
            check_families(directory)?;
        }
        let db = DB::open_cf_descriptors(&options, directory, family::descriptors()).map_err(|source| cannot_open(directory, source))?;
        let store = Self::new(db, Some(lock), directory);
        if store.get(Family::Meta, FORMAT_KEY)?.is_none() {
            store.stamp(stamp)?;
        }
        store.checked(stamp)
    }

    /// Opens the store to look at it, without the lock, and changes nothing in the folder: for `status` when no
    /// service runs. What a running service has not yet written to its log is not seen.
    ///
    /// # Errors
    /// There is no store; otherwise as for [`Store::open`].
    pub fn open_read_only(directory: &Path, stamp: &Stamp) -> Result<Self, StoreError> {
        if !exists(directory) {
            return Err(StoreError::Missing { path: directory.display().to_string() });
        }
        check_families(directory)?;
        let db = DB::open_cf_descriptors_read_only(&family::database_options(), directory, family::descriptors(), false)
            .map_err(|source| cannot_open(directory, source))?;
        Self::new(db, None, directory).checked(stamp)
    }

    fn new(db: DB, lock: Option<FolderLock>, directory: &Path) -> Self {
        Self { db, lock, path: directory.to_owned(), poisoned: AtomicBool::new(false), open_stage: Mutex::new(None) }
    }

    /// Marks a store that was just made. A process may have been killed before it came to this.
    fn stamp(&self, stamp: &Stamp) -> Result<(), StoreError> {
        for family in Family::ALL {
            let first = self.db.iterator_cf(self.family(family), IteratorMode::Start).next();
            if first.transpose().map_err(|source| self.unreadable(source))?.is_some() {
                return Err(self.damaged("format", format!("it is missing, but column family `{}` holds something", family.name())));
            }
        }
        let mut writes = WriteBatch::default();
        writes.put_cf(self.family(Family::Meta), FORMAT_KEY, FORMAT);
        writes.put_cf(self.family(Family::Meta), STREAM_KEY, &stamp.stream);
        self.write(writes, Sync::Synced)
    }

    /// The store, if it has the format that this program reads and belongs to this stream.
    fn checked(self, stamp: &Stamp) -> Result<Self, StoreError> {
        let text = |key| -> Result<Option<String>, StoreError> {
            Ok(self.get(Family::Meta, key)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        let path = self.path_text();
        match text(FORMAT_KEY)? {
            Some(found) if found == FORMAT => {}
            Some(found) => return Err(StoreError::UnknownFormat { path, found }),
            None => return Err(self.damaged("format", "it is missing")),
        }
        match text(STREAM_KEY)? {
            Some(found) if found == stamp.stream => {}
            Some(found) => return Err(StoreError::OtherStream { path, found, expected: stamp.stream.clone() }),
            None => return Err(self.damaged("stream", "it is missing")),
        }
        *self.open_stage() = self.staged()?.map(|staged| staged.batch);
        Ok(self)
    }
}

/// Makes the folder, readable by its owner only.
fn make_private(directory: &Path) -> Result<(), StoreError> {
    let io = |doing| move |source| StoreError::Io { doing, path: directory.display().to_string(), source };
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(io("create the folder above"))?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io("create the state folder")(error)),
        _ => {}
    }
    let mode = fs::metadata(directory).map_err(io("look at the state folder"))?.permissions().mode();
    if mode & 0o7777 != FOLDER_MODE {
        fs::set_permissions(directory, Permissions::from_mode(FOLDER_MODE)).map_err(io("make private the state folder"))?;
    }
    Ok(())
}

/// The folder, locked. A process that was being started meanwhile has a copy of the handle: the lock does not wait for it.
#[derive(Debug)]
pub(super) struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        let _released = self.0.unlock().is_ok();
    }
}

/// RocksDB has a lock of its own but tells of it only in the text of an error.
fn lock(directory: &Path) -> Result<FolderLock, StoreError> {
    let path = directory.display().to_string();
    let folder = File::open(directory).map_err(|source| StoreError::Io { doing: "open the state folder", path: path.clone(), source })?;
    match folder.try_lock() {
        Ok(()) => Ok(FolderLock(folder)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path }),
        Err(TryLockError::Error(source)) => Err(StoreError::Io { doing: "lock the state folder", path, source }),
    }
}

/// RocksDB writes `CURRENT` last when it makes a database.
fn exists(directory: &Path) -> bool {
    directory.join("CURRENT").exists()
}

/// A column family that this program does not know was made by a later one.
fn check_families(directory: &Path) -> Result<(), StoreError> {
    let names = DB::list_cf(&family::database_options(), directory).map_err(|source| cannot_open(directory, source))?;
    match names.into_iter().find(|name| Family::ALL.iter().all(|family| family.name() != name)) {
        None => Ok(()),
        Some(name) => Err(StoreError::UnknownFormat { path: directory.display().to_string(), found: format!("with column family {name}") }),
    }
}

fn cannot_open(directory: &Path, source: rocksdb::Error) -> StoreError {
    StoreError::RocksDb { doing: "open", path: directory.display().to_string(), source }
}
