import { useState } from 'react';

/** The token behind the `#`, which no browser sends and no log holds. */
export function useToken(): string {
  const [token] = useState(() => location.hash.slice(1));
  return token;
}
