//! Fenced transactions: those of a service's own that commit only in the term of a lease.

use std::future::Future;

use lease_core::{AsTerm, ErrorKind, FenceError, FenceReason, LossReason, Operation, StoreError, Term};
use tokio::time::timeout;
use tokio_postgres::{
    Error, Transaction,
    types::{ToSql, Type},
};

use crate::{PostgresLeaseStore, error::Failure, sql};

impl PostgresLeaseStore {
    /// Verifies on the caller's own open transaction that `lease` is held, and keeps it so: until the transaction ends, nobody else is
    /// granted the lease.
    ///
    /// The holder's renewals go on meanwhile. A transaction whose client goes silent is ended by the server when the time is up that
    /// the term had left, so that a frozen holder does not keep the lease for ever; a session's own, shorter
    /// `idle_in_transaction_session_timeout` stands. Prefer [`commit`](Self::commit), which keeps the lease for one round trip only.
    ///
    /// Verify in the outermost transaction: rolling back to a savepoint from before gives the lease up. The transaction must be in the
    /// table's database, and its role needs SELECT and UPDATE on the table.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`]: the term is over, or has run out; roll back. [`ErrorKind::RestartTransaction`]: roll back and begin again,
    /// for under REPEATABLE READ and SERIALIZABLE the transaction does not see who has the lease now. After any error the transaction
    /// cannot commit, or must not.
    ///
    /// # Cancel safety
    ///
    /// After a dropped future the lease may be verified or not; roll back, or verify again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use lease_postgres::{PostgresLeaseStore, lease_core::{FenceError, HeldLease}, tokio_postgres::Client};
    ///
    /// # async fn example(
    /// #     store: &PostgresLeaseStore, client: &mut Client, lease: &HeldLease,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("INSERT INTO ledger (entry) VALUES ('paid')", &[]).await?;
    /// match store.commit(transaction, lease).await {
    ///     Ok(()) => println!("paid, once"),
    ///     Err(FenceError::Fenced(reason)) => println!("another instance pays: {reason}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn verify(&self, transaction: &Transaction<'_>, lease: &impl AsTerm) -> Result<(), FenceError> {
        let Some(term) = lease.as_term() else {
            return Ok(());
        };
        match timeout(self.operation_timeout, self.verify_term(transaction, term)).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(reason))) => Err(FenceError::Fenced(reason)),
            Ok(Err(error)) => Err(Failure::from(error).in_a_transaction().into_error(Operation::Verify).into()),
            Err(_) => {
                let silent = "the server did not answer within the operation timeout";
                Err(StoreError::new(Operation::Verify, ErrorKind::Unavailable).with_detail(silent).into())
            }
        }
    }

    /// Verifies that `lease` is held and commits the transaction, of the driver or of deadpool, in that term.
    ///
    /// # Errors
    ///
    /// As for [`verify`](Self::verify), and then the transaction is rolled back. [`ErrorKind::Indeterminate`]: the answer to the commit
    /// never came. If it was made, it was made in the term.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the transaction committed or rolled back; which is unknown.
    pub async fn commit<T: OpenTransaction>(&self, transaction: T, lease: &impl AsTerm) -> Result<(), FenceError> {
        self.verify(transaction.driver(), lease).await?;
        let committed = match timeout(self.operation_timeout, transaction.commit()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Failure::from(error).at_answer().in_a_transaction(),
            Err(_) => Failure::new(ErrorKind::Indeterminate, "the server did not answer within the operation timeout"),
        };
        Err(committed.into_error(Operation::Commit).into())
    }

    /// The statement that [`verify`](Self::verify) sends, for users of another driver, with the parameters `$1` name, `$2` owner, both
    /// text, and `$3` token, a bigint.
    ///
    /// Execute it last in the transaction. One row: commit. No row, or an error: roll back.
    pub fn verify_sql(&self) -> &str {
        &self.sql.verify.text
    }

    /// Why the term is over; none when it was verified.
    async fn verify_term(&self, transaction: &Transaction<'_>, term: &Term) -> Result<Option<FenceReason>, Error> {
        let (name, owner, token) = (term.name.as_str(), term.owner.as_str(), term.token.value());
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&name, Type::TEXT), (&owner, Type::TEXT), (&token, Type::INT8)];
        // Unnamed, for the session is the caller's.
        if transaction.query_typed_opt(&self.sql.verify.text, &parameters).await?.is_some() {
            return Ok(None);
        }
        let row = transaction.query_typed_opt(&self.sql.fenced.text, &parameters[..1]).await?;
        let Some(row) = row else {
            return Ok(Some(FenceReason::Lost(LossReason::Deleted)));
        };
        sql::fence_reason(&row, term).map(Some)
    }
}

/// An open transaction of [`tokio_postgres`] or of [`deadpool_postgres`].
pub trait OpenTransaction: sealed::Sealed + Send {
    #[doc(hidden)]
    fn driver(&self) -> &Transaction<'_>;

    #[doc(hidden)]
    fn commit(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl OpenTransaction for Transaction<'_> {
    fn driver(&self) -> &Transaction<'_> {
        self
    }

    async fn commit(self) -> Result<(), Error> {
        Transaction::commit(self).await
    }
}

impl OpenTransaction for deadpool_postgres::Transaction<'_> {
    fn driver(&self) -> &Transaction<'_> {
        self
    }

    async fn commit(self) -> Result<(), Error> {
        deadpool_postgres::Transaction::commit(self).await
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for tokio_postgres::Transaction<'_> {}

    impl Sealed for deadpool_postgres::Transaction<'_> {}
}
