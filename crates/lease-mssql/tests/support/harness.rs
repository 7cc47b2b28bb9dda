//! The suite's way to SQL Server: a database for each case, and a network that can be held still.

use std::{sync::Arc, time::Duration};

use lease_conformance::{
    Harness, Row, Undo,
    faults::{Held, Proxy},
    servers::MssqlServer,
};
use lease_mssql::{
    MssqlLeaseStore,
    lease_core::{ForceRelease, ForcedRelease, LeaseAdmin, LeaseName, OwnerId, StoreError, async_trait},
    tiberius::ToSql,
};

use crate::server::{Address, Database, Session};

/// Babelfish takes a second of the processor for the first statement of a session, and a busy machine takes several.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct MssqlHarness {
    /// A session of its own on the case's database, for the hooks. It ends before the database.
    session: Session,
    proxy: Arc<Proxy>,
    database: Database,
}

impl MssqlHarness {
    async fn execute(&self, sql: &str, name: &LeaseName) {
        self.session.query(sql, &[&name.as_str()]).await;
    }
}

#[async_trait]
impl Harness for MssqlHarness {
    type Store = MssqlLeaseStore;

    async fn start() -> Self {
        let server = Address::shared();
        let database = Database::with_table(server.clone()).await;
        let session = database.address.session().await;
        let rows = session.query("SELECT CAST(@@VERSION AS nvarchar(300))", &[]).await;
        let version: &str = rows[0].get(0).unwrap();
        let product = version.split(['\n', '-', '(']).next().unwrap_or_default();
        lease_conformance::report(product.trim(), &MssqlServer::shared().source().to_string());
        let proxy = Arc::new(Proxy::start(server.place()).await.unwrap());
        Self { session, proxy, database }
    }

    async fn store(&self) -> MssqlLeaseStore {
        let way = self.database.address.through(self.proxy.address().port());
        // To open a connection costs Babelfish seconds.
        let config = way.config().operation_timeout(OPERATION_TIMEOUT).pool_size(2);
        MssqlLeaseStore::connect(config).await.unwrap()
    }

    async fn expire(&self, name: &LeaseName) {
        let sql = "UPDATE singleton_leases SET expires_at = SYSUTCDATETIME() \
                   WHERE name = @P1 AND expires_at > SYSUTCDATETIME()";
        self.execute(sql, name).await;
    }

    fn precision(&self) -> Duration {
        // Two clocks of one machine, and the least wait for which a grant is not written anew.
        Duration::from_millis(5)
    }

    fn operation_timeout(&self) -> Duration {
        OPERATION_TIMEOUT
    }

    async fn row(&self, name: &LeaseName) -> Option<Row> {
        let sql = "SELECT owner, token, DATEDIFF_BIG(microsecond, '1970-01-01', acquired_at), \
                   DATEDIFF_BIG(microsecond, '1970-01-01', expires_at), \
                   DATEDIFF_BIG(microsecond, '1970-01-01', hand_over_at) FROM singleton_leases WHERE name = @P1";
        let rows = self.session.query(sql, &[&name.as_str()]).await;
        let row = rows.first()?;
        Some(Row {
            owner: row.get::<&str, _>(0).map(|owner| OwnerId::new(owner).unwrap()),
            token: row.get(1).unwrap(),
            acquired_at: row.get(2).unwrap(),
            expires_at: row.get(3).unwrap(),
            hand_over_at: row.get(4),
        })
    }

    async fn set_row(&self, name: &LeaseName, row: Row) {
        let sql = "UPDATE singleton_leases SET owner = NULLIF(@P2, N''), token = @P3, \
                   acquired_at = DATEADD(microsecond, @P6, DATEADD(second, @P5, DATEADD(day, @P4, '1970-01-01T00:00:00'))), \
                   expires_at = DATEADD(microsecond, @P9, DATEADD(second, @P8, DATEADD(day, @P7, '1970-01-01T00:00:00'))), \
                   hand_over_at = DATEADD(microsecond, @P12, DATEADD(second, @P11, DATEADD(day, @P10, '1970-01-01T00:00:00'))) \
                   WHERE name = @P1"
            .replace("'1970-01-01T00:00:00'", "CAST('1970-01-01T00:00:00' AS datetime2(6))");
        let owner = row.owner.as_ref().map_or("", OwnerId::as_str);
        let (acquired, expires) = (parts(row.acquired_at), parts(row.expires_at));
        let hand_over = row.hand_over_at.map(parts).map_or([None; 3], |parts| parts.map(Some));
        let parameters: [&dyn ToSql; 12] = [
            &name.as_str(),
            &owner,
            &row.token,
            &acquired[0],
            &acquired[1],
            &acquired[2],
            &expires[0],
            &expires[1],
            &expires[2],
            &hand_over[0],
            &hand_over[1],
            &hand_over[2],
        ];
        self.session.query(&sql, &parameters).await;
    }

    async fn clock(&self) -> i64 {
        self.session.one("SELECT DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME())", &[]).await
    }

    async fn delete_row(&self, name: &LeaseName) {
        self.execute("DELETE FROM singleton_leases WHERE name = @P1", name).await;
    }

    async fn force_release(&self, name: &LeaseName, mode: ForceRelease) -> Result<Option<ForcedRelease>, StoreError> {
        self.store().await.force_release(name, mode).await
    }

    async fn request_hand_over(&self, name: &LeaseName) {
        self.execute("UPDATE singleton_leases SET hand_over_at = SYSUTCDATETIME() WHERE name = @P1", name).await;
    }

    async fn drop_table(&self) -> Undo {
        self.session.execute("DROP TABLE singleton_leases").await;
        let store = self.store().await;
        Undo::new(async move { store.migrate().await.unwrap() })
    }

    async fn lock_row(&self, name: &LeaseName) -> Undo {
        let locking = self.database.address.session().await;
        locking.execute("BEGIN TRANSACTION").await;
        let lock = "UPDATE singleton_leases SET token = token WHERE name = @P1";
        locking.query(lock, &[&name.as_str()]).await;
        let insert = "INSERT INTO singleton_leases (name, owner, token, acquired_at, expires_at) \
                      SELECT @P1, N'foreign', 1, SYSUTCDATETIME(), DATEADD(hour, 1, SYSUTCDATETIME()) \
                      WHERE NOT EXISTS (SELECT 1 FROM singleton_leases WHERE name = @P1)";
        locking.query(insert, &[&name.as_str()]).await;
        Undo::new(async move { locking.execute("ROLLBACK TRANSACTION").await })
    }

    async fn stall(&self) -> Undo {
        self.proxy.hold(Held { requests: true, responses: true });
        let proxy = Arc::clone(&self.proxy);
        Undo::new(async move { proxy.hold(Held::default()) })
    }
}

/// Unix microseconds as the 32-bit numbers of days, seconds and microseconds that DATEADD takes.
fn parts(time: i64) -> [i32; 3] {
    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 24 * 60 * 60 * SECOND;
    [time.div_euclid(DAY), time.rem_euclid(DAY) / SECOND, time.rem_euclid(SECOND)].map(|part| part.try_into().unwrap())
}
