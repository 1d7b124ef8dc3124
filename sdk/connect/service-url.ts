/**
 * The address of a service without slashes at its end. Throws a TypeError if it is not an http address: a window that
 * opens a `javascript:` address would run it with the rights of the page.
 */
export function serviceUrl(address: string): string {
  const { protocol, search, hash } = new URL(address);
  if ((protocol !== 'https:' && protocol !== 'http:') || search !== '' || hash !== '')
    throw new TypeError(
      'The address of the service must begin with http, and has neither a query nor a fragment.',
    );
  return address.replace(/\/+$/, '');
}
