"""The outbox beside them."""

from alembic import op

from semel.alembic import create_outbox, drop_outbox

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_outbox(op)


def downgrade() -> None:
    drop_outbox(op)
