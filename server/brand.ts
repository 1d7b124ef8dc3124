/** The interface names that contain the brand word. Only the names of the configured brand are valid. */
export type Brand = {
  readonly word: string;
  /** `_<brand>_metadata`: the metadata of a record. */
  readonly metadataKey: string;
  /** `_<brand>_export`: the last line of an export. */
  readonly exportKey: string;
  /** `<brand>-proxy-`: a header with this prefix is sent to the provider without it. Lower case. */
  readonly proxyHeaderPrefix: string;
  readonly sessionTokenPrefix: string;
  /** `<brand>-oauth-callback`: the BroadcastChannel of the callback page. */
  readonly callbackChannel: string;
  /** Prefix of the messages the callback page posts: `<brand>_oauth_callback`. */
  readonly callbackMessage: string;
  /** `X-<Brand>-<name>` */
  header(name: string): string;
  /** `<Brand>-<name>`, for the few headers without the X. */
  bareHeader(name: string): string;
};

/** All names of one brand word (`[a-z][a-z0-9]*`). */
export function brandNames(word: string): Brand {
  const capital = word.charAt(0).toUpperCase() + word.slice(1);
  return {
    word,
    metadataKey: `_${word}_metadata`,
    exportKey: `_${word}_export`,
    proxyHeaderPrefix: `${word}-proxy-`,
    sessionTokenPrefix: `${word}_connect_session_`,
    callbackChannel: `${word}-oauth-callback`,
    callbackMessage: `${word}_oauth_callback`,
    header: (name) => `X-${capital}-${name}`,
    bareHeader: (name) => `${capital}-${name}`,
  };
}
