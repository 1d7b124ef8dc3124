import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  listMigrations,
  migrationsDirectory,
  numberOf,
  readMigration,
  statementsOf,
} from './migration-files.ts';

/** The newest migration of the last release: services of that release run beside those of the next one. */
const released = 33;

/** What a migration may not do without a line `-- safe: ...` in front of the statement that says why it may. */
const unsafe: { why: string; found: (statement: string, made: ReadonlySet<string>) => boolean }[] = [
  {
    why: 'takes away what services of the last release may use',
    found: (text) => /\bdrop (table|column|function|view|type|sequence|trigger)\b/.test(text),
  },
  {
    why: 'renames what services of the last release use',
    found: (text) => /\brename\b/.test(text),
  },
  {
    why: 'rewrites the whole table or looks through it, while nobody reads it',
    found: (text, made) =>
      !made.has(tableOf(text)) &&
      /\balter column \w+ (set data )?type\b|\bset not null\b|\bset (un)?logged\b/.test(text),
  },
  {
    why: 'demands a value that services of the last release do not give',
    found: (text, made) =>
      !made.has(tableOf(text)) && /\badd column \w+ [^,]*\bnot null\b(?![^,]*\bdefault\b)/.test(text),
  },
  {
    why: 'demands of rows that are there, or of services of the last release, what they may not hold',
    found: (text, made) =>
      !made.has(tableOf(text)) &&
      /\badd (constraint|check|unique)\b/.test(text) &&
      !/\badd column\b/.test(text),
  },
  {
    why: 'builds an index while nobody writes the table',
    found: (text, made) =>
      /^create (unique )?index (?!concurrently)/.test(text) && !made.has(wordOf(text, / on (?:only )?(\w+)/)),
  },
  {
    why: 'changes rows, however many there are, while the other migrations wait',
    found: (text, made) =>
      /^(update|delete from|insert into) /.test(text) &&
      !made.has(wordOf(text, /^(?:update|delete from|insert into) (\w+)/)),
  },
];

function tableOf(text: string): string {
  return wordOf(text, /^alter table (?:if exists )?(?:only )?(\w+)/);
}

function wordOf(text: string, pattern: RegExp): string {
  return pattern.exec(text)?.[1] ?? '';
}

/** What is wrong with a migration's text. */
function faultsOf(text: string): string[] {
  const made = new Set([...text.matchAll(/^create (?:unlogged )?table (\w+)/gm)].map(([, name]) => name!));
  const withoutBodies = text.replace(/\$(\w*)\$[\s\S]*?\$\1\$/g, "''");
  return withoutBodies.split(/;[ \t]*$/m).flatMap((part) => {
    const statement = part
      .replace(/^\s*--.*$/gm, '')
      .replace(/\s+/g, ' ')
      .trim()
      .toLowerCase();
    if (/^\s*-- safe: \S/m.test(part)) return [];
    return unsafe
      .filter(({ found }) => found(statement, made))
      .map(({ why }) => `${statement.slice(0, 60)}: ${why}`);
  });
}

test('services of the last release run on what the migrations since then make', async () => {
  const names = (await listMigrations()).filter((name) => numberOf(name) > released);
  for (const name of names) {
    const { runsWith, statements, isOutsideTransaction } = await readMigration(name);
    assert.ok(
      runsWith !== undefined && runsWith <= released,
      `${name} lacks "-- runs with: ${String(released).padStart(4, '0')}" in its head (docs/operations/upgrading.md)`,
    );
    assert.deepEqual(faultsOf(await readFile(join(migrationsDirectory, name), 'utf8')), [], name);
    if (!isOutsideTransaction) continue;
    for (const statement of statements)
      assert.match(statement, /^\s*(--.*\s+)*(create|drop) .*index concurrently/, name);
  }
});

test('a migration that stops a running service, or that one of the last release cannot do with, is found', () => {
  const bad = [
    'drop table run',
    'alter table run drop column kind',
    'alter table run rename column kind to sort',
    'alter table run alter column kind type integer',
    'alter table run alter column kind set not null',
    'alter table run add column more text not null',
    `alter table run add constraint run_more check (kind <> '')`,
    'create index run_more on run (kind)',
    `update run set kind = ''`,
  ];
  for (const statement of bad) {
    assert.equal(faultsOf(`${statement};`).length, 1, statement);
    assert.deepEqual(faultsOf(`-- safe: nobody uses it.\n${statement};`), [], statement);
  }
  const good = [
    'alter table run add column more text',
    `alter table run add column more text not null default ''`,
    'create table more (id bigint); create index more_id on more (id)',
    'alter table run drop constraint run_kind',
    'create index concurrently run_more on run (kind)',
  ];
  for (const statement of good)
    assert.deepEqual(faultsOf(`${statement.replaceAll('; ', ';\n')};`), [], statement);
});

test('a migration is split at the semicolons between its statements alone', () => {
  const statements = [
    "-- A table; with a comment.\ncreate table a (b text default 'it''s; fine' check (b <> ';'))",
    "\ncreate function c() returns trigger language plpgsql as $$\nbegin\n  return null; -- it's\nend;\n$$",
    "\ncreate function d() returns text as $body$ select '$$;'; $body$ language sql",
    '\n/* e; f */ alter table "a;b" add column c text',
  ];
  assert.deepEqual(statementsOf(`${statements.join(';')};\n-- The end;\n;\n`), statements);
});

test('no two migrations have the same number', async () => {
  const numbers = (await listMigrations()).map(numberOf);
  assert.deepEqual(numbers, [...new Set(numbers)]);
});
