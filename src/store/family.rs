//! The column families and how each is tuned: for a small share of memory, many blind writes, and a few
//! look-ups that mostly find something.

use rocksdb::{BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DBCompressionType, LogLevel, Options};

use crate::store::Store;

/// Data, indexes and filters of all column families together.
const BLOCK_CACHE_BYTES: usize = 32 << 20;

/// One memory table of the row index. Two exist while one is written out.
const ROW_BUFFER_BYTES: usize = 16 << 20;

/// One memory table of the stage, through which the changes of every batch go once.
const STAGE_BUFFER_BYTES: usize = 16 << 20;

/// One memory table of the others, which hold little.
const SMALL_BUFFER_BYTES: usize = 2 << 20;

/// All memory tables together: past it the largest is written out early.
const BUFFERS_BYTES: usize = 64 << 20;

/// Log that a start may have to read again.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// Descriptors for tables; the events need some too.
const OPEN_FILES_MAX: i32 = 256;

/// RocksDB's own log, beside the data.
const INFO_LOGS: usize = 3;
const INFO_LOG_BYTES: usize = 1 << 20;

/// Ten bits a key: one look-up in a hundred for a key that is not there reads a block in vain.
const BLOOM_BITS: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Meta,
    Progress,
    Stage,
    Transactions,
    Rows,
    Rereads,
    Journal,
    Schema,
}

impl Family {
    pub(super) const ALL: [Self; 8] =
        [Self::Meta, Self::Progress, Self::Stage, Self::Transactions, Self::Rows, Self::Rereads, Self::Journal, Self::Schema];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Meta => rocksdb::DEFAULT_COLUMN_FAMILY_NAME,
            Self::Progress => "progress",
            Self::Stage => "stage",
            Self::Transactions => "transactions",
            Self::Rows => "rows",
            Self::Rereads => "rereads",
            Self::Journal => "journal",
            Self::Schema => "schema",
        }
    }

    fn descriptor(self, cache: &Cache) -> ColumnFamilyDescriptor {
        let mut options = Options::default();
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_cache_index_and_filter_blocks(true);
        match self {
            Self::Rows => {
                options.set_write_buffer_size(ROW_BUFFER_BYTES);
                options.set_level_compaction_dynamic_level_bytes(true);
                options.set_memtable_whole_key_filtering(true);
                options.set_memtable_prefix_bloom_ratio(0.05);
                // In parts, so that the filters of a large index share the cache instead of filling it.
                table.set_bloom_filter(BLOOM_BITS, false);
                table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
                table.set_partition_filters(true);
                table.set_pin_top_level_index_and_filter(true);
                table.set_block_size(8 << 10);
            }
            Self::Stage => options.set_write_buffer_size(STAGE_BUFFER_BYTES),
            Self::Meta | Self::Progress | Self::Transactions | Self::Rereads | Self::Journal | Self::Schema => {
                options.set_write_buffer_size(SMALL_BUFFER_BYTES);
            }
        }
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_block_based_table_factory(&table);
        ColumnFamilyDescriptor::new(self.name(), options)
    }
}

/// All column families, sharing one cache.
pub(super) fn descriptors() -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
    Family::ALL.into_iter().map(|family| family.descriptor(&cache)).collect()
}

/// Options of the database as a whole.
pub(super) fn database_options() -> Options {
    let mut options = Options::default();
    options.set_db_write_buffer_size(BUFFERS_BYTES);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_keep_log_file_num(INFO_LOGS);
    options.set_max_log_file_size(INFO_LOG_BYTES);
    options.set_log_level(LogLevel::Warn);
    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // One thread writes.
    options.set_allow_concurrent_memtable_write(false);
    options
}

impl Store {
    pub(super) fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("all column families are opened together")
    }
}
