export type {
  ActionContext,
  ActionContext as NangoAction,
  ConnectionView,
  Context,
  EventContext,
  FetchResponse,
  LogLevel,
  SyncContext,
  SyncContext as NangoSync,
} from './context.ts';
export {
  type ActionDefinition,
  createAction,
  createOnEvent,
  createSync,
  type Occasion,
  type OnEventDefinition,
  type SyncDefinition,
} from './definitions.ts';
export type {
  CursorPagination,
  LinkPagination,
  Method,
  OffsetPagination,
  Pagination,
  ProxyConfiguration,
  ProxyError,
  ProxyResponse,
} from './http.ts';
