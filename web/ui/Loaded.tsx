import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { FaultNotice } from './FaultNotice.tsx';
import { LoadingRows } from './Loading.tsx';

/** The states of what is fetched: loading, refused, there. Old data stays in sight while new data fails to come. */
export function Loaded<T>({
  query,
  loading = <LoadingRows />,
  children,
}: {
  query: UseQueryResult<T>;
  loading?: ReactNode;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) {
    return (
      <>
        {query.isError && <FaultNotice error={query.error} onRetry={() => void query.refetch()} />}
        {children(query.data)}
      </>
    );
  }
  if (query.isError) return <FaultNotice error={query.error} onRetry={() => void query.refetch()} />;
  return loading;
}
