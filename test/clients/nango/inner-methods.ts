/** Methods that the declarations of the published clients call private: what is public calls them. */
export const innerMethods: readonly string[] = [
  // Of the client for Node.
  '_triggerAction',
  '_verifyWebhookSignatureImpl',
  'getConnectionDetails',
  'enrichHeaders',
  // Of the one for browsers, and of the frame that it opens.
  'convertCredentialsToConfig',
  'triggerAuth',
  'customAuth',
  'toQueryString',
  'ensureCredentials',
  'createIframe',
  'setupEventListeners',
  'sendSessionToken',
];
