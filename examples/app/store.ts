/** The application's own data: the connected accounts and their rows, in one SQLite file. */
import { DatabaseSync } from 'node:sqlite';

/** A user's connected account, as shown on the page. */
export type Account = {
  connectionId: string;
  person: string;
  /** The address of the account at the provider, if known. */
  email: string | null;
  /** The chosen spreadsheet and tab; null if none is chosen. */
  sheet: string | null;
  /** The required action of the user; null if the connection works. */
  problem: string | null;
  /** In the order of the sheet, if known. */
  columns: string[];
};
export type Row = { id: string; fields: Record<string, unknown>; cursor: string };
/** The changes of a batch of records. */
export type Change = {
  changed: Row[];
  deleted: string[];
  /** Present, with fields in this store only (pruned at Trellis). */
  kept: string[];
  /** Whether all records come from here on; stored rows that do not come are removed. */
  isRestart: boolean;
  /** Whether all records have come. */
  isCaughtUp: boolean;
};

export type Store = ReturnType<typeof openStore>;

export function openStore(file: string) {
  const db = new DatabaseSync(file);
  db.exec(`
    pragma journal_mode = wal;
    pragma foreign_keys = on;
    create table if not exists account (
      connectionId text primary key, person text not null unique, email text, sheet text, problem text);
    create table if not exists layout (
      connectionId text primary key references account on delete cascade, columns text not null);
    create table if not exists row (
      connectionId text not null references account on delete cascade,
      id text not null, fields text not null, cursor text not null, primary key (connectionId, id));
    -- Rows that have not come since the last restart. A restart may be completed by a later run of this program.
    create table if not exists missing (
      connectionId text not null, id text not null, primary key (connectionId, id),
      foreign key (connectionId, id) references row on delete cascade);`);
  const accounts = `select account.*, coalesce(columns, '[]') as columns
    from account left join layout using (connectionId)`;
  const find = db.prepare(`${accounts} where connectionId = ? or person = ?`);
  const save = db.prepare(`insert into account values (:connectionId, :person, :email, :sheet, :problem)
    on conflict (connectionId) do update set email = :email, sheet = :sheet, problem = :problem`);
  const arrange = db.prepare(`insert into layout values (?, ?)
    on conflict (connectionId) do update set columns = excluded.columns`);
  const remove = db.prepare('delete from account where connectionId = ?');
  const list = db.prepare('select id, fields, cursor from row where connectionId = ? order by rowid');
  const put = db.prepare(`insert into row values (?, ?, ?, ?)
    on conflict (connectionId, id) do update set fields = excluded.fields, cursor = excluded.cursor`);
  const drop = db.prepare('delete from row where connectionId = ? and id = ?');
  const missAll = db.prepare(`insert into missing select connectionId, id from row where connectionId = ?
    on conflict do nothing`);
  const come = db.prepare('delete from missing where connectionId = ? and id = ?');
  const listMissing = db.prepare('select id from missing where connectionId = ?');

  return {
    accounts: () => db.prepare(accounts).all().map(accountIn) as Account[],
    accountOf: (person: string) => accountIn(find.get('', person)),
    account: (connectionId: string) => accountIn(find.get(connectionId, '')),
    /** A user has one account. */
    save: (account: Omit<Account, 'columns'>) => void save.run(account),
    arrange: (connectionId: string, columns: string[]) =>
      void arrange.run(connectionId, JSON.stringify(columns)),
    remove: (connectionId: string) => void remove.run(connectionId),
    rows: (connectionId: string): Row[] =>
      list.all(connectionId).map(({ id, fields, cursor }) => ({
        id: String(id),
        cursor: String(cursor),
        fields: JSON.parse(String(fields)) as Row['fields'],
      })),
    /** Stores a batch in one transaction, before it is acknowledged to Trellis. Returns the removed rows. */
    change(connectionId: string, { changed, deleted, kept, isRestart, isCaughtUp }: Change): string[] {
      db.exec('begin');
      try {
        if (isRestart) missAll.run(connectionId);
        for (const { id, fields, cursor } of changed)
          put.run(connectionId, id, JSON.stringify(fields), cursor);
        for (const id of [...changed.map((row) => row.id), ...kept]) come.run(connectionId, id);
        const missing = isCaughtUp ? listMissing.all(connectionId).map(({ id }) => String(id)) : [];
        const gone = [...deleted, ...missing];
        for (const id of gone) drop.run(connectionId, id);
        db.exec('commit');
        return gone;
      } catch (error) {
        db.exec('rollback');
        throw error;
      }
    },
    close: () => db.close(),
  };
}

function accountIn(row: Record<string, unknown> | undefined): Account | undefined {
  return row && ({ ...row, columns: JSON.parse(String(row.columns)) } as Account);
}
