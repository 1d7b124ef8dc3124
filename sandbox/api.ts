import type { IncomingHttpHeaders } from 'node:http';
import type { Access } from './access.ts';

/** A request as an API of the sandbox sees it. */
export interface ApiRequest {
  method: string;
  /** Path and query exactly as they came over the wire. */
  rawUrl: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
  access: Access;
}

/** What an API answers; the server adds nothing but the length. */
export interface ApiReply {
  status: number;
  headers: Record<string, string>;
  body: Buffer | string;
}

/** An API served at the sandbox's origin beside OAuth and the control routes. */
export interface Api {
  /** Whether a path (without query) belongs to this API; everything it says yes to, it answers, 404s included. */
  matches(path: string): boolean;
  /** The path with its ids and ranges replaced by their names, so that counts add up over spreadsheets. */
  routeOf(method: string, path: string): string;
  handle(request: ApiRequest): Promise<ApiReply>;
  /** Writes what is not on disk yet. */
  close(): Promise<void>;
}
