/** What the control routes share: the sandbox they act on, and the words they understand. */
import { z } from 'zod';
import type { AccountActs } from '../account-acts.ts';
import { type Account, type Accounts, isEmail } from '../accounts.ts';
import type { Calls } from '../calls.ts';
import type { Client, Clients, Project } from '../clients.ts';
import type { Clock } from '../clock.ts';
import type { Cell } from '../csv.ts';
import type { Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import type { Incoming } from '../http.ts';
import type { Authorize } from '../oauth/authorize.ts';
import type { Consent } from '../oauth/consent.ts';
import type { Quota } from '../quota.ts';
import type { Receivers } from '../receivers.ts';
import type { Refreshes } from '../refreshes.ts';
import type { SecurityEvents } from '../security-events.ts';
import type { Damage } from '../sheets/damage.ts';
import type { Tokens } from '../tokens.ts';
import { invalid } from './answer.ts';

/** What the control routes act on. */
export interface ControlParts {
  url: string;
  accounts: Accounts;
  acts: AccountActs;
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
  channels: PushChannels;
  save: () => Promise<void>;
}

/** The spreadsheets as the control routes reach them. */
export interface Spreadsheets {
  /** Makes a spreadsheet that belongs to an account, filled with rows. */
  create(wanted: {
    account: Account;
    title: string;
    sheet: string;
    rows: Cell[][];
  }): Promise<{ spreadsheetId: string }>;
  /** Changes a spreadsheet as a careless person would. Answers whether there is such a spreadsheet. */
  damage(spreadsheetId: string, damage: Damage): Promise<boolean>;
  list(): Promise<{ spreadsheetId: string; title: string; owner: { email: string } }[]>;
}

/** The push channels that are open, as the control routes see them. */
export interface PushChannels {
  list(): { id: string; address: string; fileId: string | undefined; expiresAt: number; messages: number }[];
}

/** A control route: gives what is answered as JSON, or throws a `ControlError`. */
export type ControlRoute = (request: Incoming, parts: ControlParts) => Promise<unknown> | unknown;

/** How many accounts, and how many clients, may be added by control routes. */
export const ADDED_LIMIT = 10_000;
export const TEN_YEARS_S = 10 * 365 * 86_400;
export const NAME = z.string().min(1).max(200);
export const EMAIL = z.string().refine(isEmail, 'is not an e-mail address');
export const PROJECT_NUMBER = z.string().regex(/^\d{6,20}$/, 'must be digits');

/** The account of this address or id; throws a `ControlError` that names the field `account`. */
export function getAccount(emailOrSub: string, accounts: Accounts): Account {
  const account = accounts.find(emailOrSub);
  if (account === undefined)
    throw invalid('account', `there is no account ${emailOrSub}; POST /_sandbox/accounts adds one`);
  return account;
}

/** The client of this id; throws a `ControlError` that names the field `client_id`. */
export function getClient(clientId: string, clients: Clients): Client {
  const client = clients.find(clientId);
  if (client === undefined) throw invalid('client_id', 'no such client');
  return client;
}

/** The project of this number; throws a `ControlError` that names the field `project_number`. */
export function getProject(number: string, clients: Clients): Project {
  const project = clients.findProject(number);
  if (project === undefined)
    throw invalid('project_number', 'no such project; POST /_sandbox/clients makes one');
  return project;
}

/** A time of the sandbox's clock on the wire. */
export function timeToWire(ms: number): string {
  return new Date(ms).toISOString();
}
