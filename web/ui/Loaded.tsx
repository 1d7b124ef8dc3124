import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { FaultNotice } from './FaultNotice.tsx';
import { LoadingRows } from './Loading.tsx';

/** The states of a query: loading, error, data. Old data stays visible if a refetch fails. */
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
