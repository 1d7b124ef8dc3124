/** Calls through the proxy. Names and shapes are those of existing functions. */
import type { Loose } from './context.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export type ProxyConfiguration = {
  /** A path of the provider's API, with or without a leading slash, or a URL below its base URL. */
  endpoint: string;
  method?: Method | Lowercase<Method>;
  headers?: Record<string, string | number | boolean | undefined>;
  /** The query. An array becomes a repeated name; undefined and null are left out. */
  params?: string | URLSearchParams | Record<string, QueryValue | QueryValue[]>;
  /** The body. An object is sent as JSON, or as a form according to Content-Type; strings and bytes are sent unchanged. */
  data?: unknown;
  /** The number of further attempts after temporary failures, 0 to 10. */
  retries?: number;
  /** Statuses that are retried in addition to the usual ones. */
  retryOn?: number[] | null;
  /** The provider's address or one below it, or one whose origin the integration allows. */
  baseUrlOverride?: string;
  /** The form of `data` in the response. By default parsed JSON, else text. */
  responseType?: 'arraybuffer' | 'json' | 'text' | 'stream';
  decompress?: boolean;
  /** Only the connection of the run: another one throws `other_connection`. */
  connectionId?: string;
  /** As `connectionId`. */
  providerConfigKey?: string;
  paginate?: Partial<Pagination>;
};
type QueryValue = string | number | boolean | null | undefined;

export type ProxyResponse<T = unknown> = {
  data: T;
  status: number;
  statusText: string;
  /** Names in lower case. The values are strings, and existing functions check for lists. */
  headers: Record<string, Loose>;
  config: ProxyConfiguration;
};

/** Thrown for statuses from 400 on, and for calls without a response (then without `response`). */
export type ProxyError = Error & {
  isAxiosError: true;
  code: string;
  status?: number;
  response?: ProxyResponse;
};

type Page = {
  /**
   * The path of the items in the response, such as `data.items`. A key that contains dots has precedence. Without a path the
   * response is the list.
   */
  response_path?: string;
  /** The number of items in a page; sent as `limit_name_in_request`. */
  limit?: number;
  limit_name_in_request?: string;
  /**
   * Whether position and limit are sent in the body, where a name with dots is a path. The default is true for POST, PUT and
   * PATCH.
   */
  in_body?: boolean;
  on_page?: (page: { nextPageParam: string | number | undefined; response: ProxyResponse }) => unknown;
};
export type CursorPagination = Page & {
  type: 'cursor';
  cursor_path_in_response: string;
  cursor_name_in_request: string;
};
export type LinkPagination = Page & {
  type: 'link';
  link_rel_in_response_header?: string;
  /** With `link_rel_in_response_header`: used if the response has no such header. */
  link_path_in_response_body?: string;
};
export type OffsetPagination = Page & {
  type: 'offset';
  offset_name_in_request: string;
  offset_start_value?: number;
  /** Whether the offset counts pages or items; items by default. */
  offset_calculation_method?: 'per-page' | 'by-response-size';
};
export type Pagination = CursorPagination | LinkPagination | OffsetPagination;
