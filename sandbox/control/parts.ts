/** Types, schemas and look-ups that the control routes share. */
import { z } from 'zod';
import type { AccountChanges } from '../account-changes.ts';
import { type Account, type Accounts, isEmail } from '../accounts.ts';
import type { Calls, Refreshes } from '../calls.ts';
import type { Client, Clients, Project } from '../clients.ts';
import type { Clock } from '../clock.ts';
import type { Cell } from '../csv.ts';
import type { Channels } from '../drive/channels.ts';
import type { Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import type { Incoming } from '../http.ts';
import type { Authorize } from '../oauth/authorize.ts';
import type { Consent } from '../oauth/consent.ts';
import type { Quota } from '../quota.ts';
import type { Receivers, SecurityEvents } from '../security-events.ts';
import type { Damage } from '../sheets/damage.ts';
import type { Tokens } from '../tokens.ts';
import { invalid } from './answer.ts';

/** The parts of the sandbox that control routes read and change. */
export interface ControlParts {
  url: string;
  accounts: Accounts;
  accountChanges: AccountChanges;
  clients: Clients;
  grants: Grants;
  tokens: Tokens;
  authorize: Authorize;
  consent: Consent;
  clock: Clock;
  faults: Faults;
  refreshes: Refreshes;
  calls: Calls;
  quota: Quota;
  receivers: Receivers;
  securityEvents: SecurityEvents;
  spreadsheets: Spreadsheets;
  channels: Channels;
  save: () => Promise<void>;
}

/** The part of the Sheets API that control routes use. */
export interface Spreadsheets {
  /** Creates a spreadsheet of an account, with these rows. */
  create(wanted: {
    account: Account;
    title: string;
    sheet: string;
    rows: Cell[][];
  }): Promise<{ spreadsheetId: string }>;
  /** Damages a spreadsheet like a careless user. Returns false if the spreadsheet does not exist. */
  damage(spreadsheetId: string, damage: Damage): Promise<boolean>;
  list(): Promise<{ spreadsheetId: string; title: string; owner: { email: string } }[]>;
}

/** A control route: returns the value that is sent as JSON, or throws a `ControlError`. */
export type ControlRoute = (request: Incoming, parts: ControlParts) => Promise<unknown> | unknown;

/** The limit of accounts, and of clients. */
export const addedLimit = 10_000;
export const tenYearsS = 10 * 365 * 86_400;
export const nameText = z.string().min(1).max(200);
export const emailText = z.string().refine(isEmail, 'is not an e-mail address');
export const projectNumberText = z.string().regex(/^\d{6,20}$/, 'must be digits');

/** The account of this address or id; throws a `ControlError` that names the field `account`. */
export function getAccount(emailOrSub: string, accounts: Accounts): Account {
  const account = accounts.find(emailOrSub);
  if (account === undefined)
    throw invalid('account', `there is no account ${emailOrSub}. Add it with POST /_sandbox/accounts.`);
  return account;
}

/** The client of this id; throws a `ControlError` that names the field `client_id`. */
export function getClient(clientId: string, clients: Clients): Client {
  const client = clients.find(clientId);
  if (client === undefined) throw invalid('client_id', 'is not a known client');
  return client;
}

/** The project of this number; throws a `ControlError` that names the field `project_number`. */
export function getProject(number: string, clients: Clients): Project {
  const project = clients.findProject(number);
  if (project === undefined)
    throw invalid('project_number', 'is not a known project. Create one with POST /_sandbox/clients.');
  return project;
}

export function timeToWire(ms: number): string {
  return new Date(ms).toISOString();
}
