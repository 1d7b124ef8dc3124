export type { ActionOptions, ActionRun, Actions, ResultOptions } from './actions.ts';
export type { Connection, ConnectionOptions } from './connection.ts';
export type { ErrorCode } from './error-codes.ts';
export {
  type ClientErrorCode,
  type ErrorPayloads,
  type FieldError,
  type Health,
  isTrellisError,
  type KnownCode,
  TrellisError,
} from './errors.ts';
export type { EventData } from './event-types.ts';
export type {
  Endpoints,
  EventFollowOptions,
  EventListOptions,
  EventPage,
  Events,
  EventType,
  EventTypeName,
  TrellisEvent,
} from './events.ts';
export type { Batch, FollowOptions } from './follow.ts';
export type { Paged } from './paged.ts';
export type {
  ListOptions,
  NewRecord,
  PartialRecord,
  PruneOptions,
  PruneProgress,
  RecordMetadata,
  RecordPage,
  Records,
  SaveOptions,
  StoredRecord,
} from './records.ts';
export type {
  ApiKey,
  ConnectionDetails,
  ConnectionListOptions,
  Connections,
  ConnectSession,
  ConnectSessions,
  DeleteConnectionOptions,
  GetConnectionOptions,
  Integration,
  Integrations,
  Keys,
  ListedConnection,
  Metadata,
  Provider,
  Providers,
  Tickets,
  Variable,
  Variables,
} from './resources.ts';
export type {
  Answer,
  Arguments,
  Body,
  CallOptions,
  Given,
  KeyedCallOptions,
  Query,
  Route,
} from './route-call.ts';
export type { Routes, Schemas } from './routes.ts';
export type { SyncName, SyncNames, Syncs, TriggerOptions } from './syncs.ts';
export type { Fetch, Key } from './transport.ts';
export { Trellis, type TrellisOptions } from './trellis.ts';
export { type EventHeaders, type VerifyOptions, verifyEvent, verifyHmac } from './verify-event.ts';
