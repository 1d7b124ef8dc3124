/** Calls through the proxy, as functions write them. Names and shapes are those that existing functions use. */

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export type ProxyConfiguration = {
  /** Path of the provider's API, with or without a slash in front, or an address below its base. */
  endpoint: string;
  method?: Method | Lowercase<Method>;
  headers?: Record<string, string | number | boolean | undefined>;
  /** Query: an array is sent as the repeated name; undefined and null are left out. */
  params?: string | URLSearchParams | Record<string, QueryValue | QueryValue[]>;
  /** Body: an object goes as JSON, or as a form where Content-Type says so; text and bytes as they are. */
  data?: unknown;
  /** Further attempts where the first fails in a way that passes; 0 to 10. */
  retries?: number;
  /** Statuses that are tried again beside those that usually pass. */
  retryOn?: number[] | null;
  /** Counts only where the integration allows its origin. */
  baseUrlOverride?: string;
  /** How `data` of the answer is read; JSON where it is, else text. */
  responseType?: 'arraybuffer' | 'json' | 'text' | 'stream';
  decompress?: boolean;
  /** The run's own, if anything: another one is refused with `other_connection`. */
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
  /** Names in lower case. */
  headers: Record<string, string>;
  config: ProxyConfiguration;
};

/** Of statuses from 400 on, and of calls without an answer (then without `response`). */
export type ProxyError = Error & {
  isAxiosError: true;
  code: string;
  status?: number;
  response?: ProxyResponse;
};

type Page = {
  /**
   * Where in the answer its items stand, as `data.items`; a key that holds dots itself goes first. Without it the answer is the
   * list.
   */
  response_path?: string;
  /** Items a page; sent as `limit_name_in_request`. */
  limit?: number;
  limit_name_in_request?: string;
  /**
   * Whether position and limit go in the body, a name with dots as a path; those of POST, PUT and PATCH do unless said
   * otherwise.
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
  /** Beside a header: where the answer has no such header. */
  link_path_in_response_body?: string;
};
export type OffsetPagination = Page & {
  type: 'offset';
  offset_name_in_request: string;
  offset_start_value?: number;
  /** Whether the next offset is the next page's number or that of its first item; the latter unless said otherwise. */
  offset_calculation_method?: 'per-page' | 'by-response-size';
};
export type Pagination = CursorPagination | LinkPagination | OffsetPagination;
