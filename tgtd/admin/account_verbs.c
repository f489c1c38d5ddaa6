/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tgtadm --mode account: users, and what they are bound and tied to. */
#include "conf/model.h"
#include "tgtd/admin/json.h"
#include "tgtd/iscsi/iscsi.h"

static enum adm_status account_status(struct adm_call *call, int err)
{
	switch (err) {
	case 0:
		return ADM_OK;
	case -EEXIST:
		return ADM_USER_EXIST;
	case -ENOENT:
		return ADM_NO_USER;
	case -EBUSY:
		return ADM_OUTACCOUNT_EXIST;
	case -ENOSPC:
		return ADM_TOO_MANY_USER;
	case -EALREADY:
		return ADM_BINDING_EXIST;
	case -ENXIO:
		return ADM_NO_BINDING;
	default:
		return refuse_errno(call, err, "account");
	}
}

enum adm_status account_check(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	if (!user || !password || !iscsi_account_valid(user, password))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "a user and a password have 1 to 255 characters");
	if (!strcmp(password, CONF_NO_PASSWORD))
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "the password of %s is still to be filled in", user);
	if (!iscsi_secret_weak(password))
		return ADM_OK;
	/* RFC 7143 12.1.3 */
	if (adm.refuse_weak)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "the password of %s has fewer than %d characters", user,
				    ISCSI_SECRET_MIN);
	warn(call, "the password of %s has fewer than %d characters", user, ISCSI_SECRET_MIN);
	return ADM_OK;
}

static enum adm_status account_file(struct adm_call *call)
{
	const char *file = call->req.text[ADM_T_FILE];

	return account_status(call, iscsi_account_set_file(call->req.text[ADM_T_USER], file));
}

enum adm_status verb_account_new(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];
	enum adm_status status = account_check(call);

	if (status == ADM_OK)
		status = account_status(call, iscsi_account_new(user, password));
	return status == ADM_OK ? account_file(call) : status;
}

enum adm_status verb_account_update(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	enum adm_status status = account_check(call);

	if (status == ADM_OK)
		status = account_status(call, iscsi_account_set_password(user, password));
	return status == ADM_OK ? account_file(call) : status;
}

enum adm_status verb_account_delete(struct adm_call *call)
{
	if (!call->req.text[ADM_T_USER])
		return admin_refuse(call, ADM_INVALID_REQUEST, "which user?");
	return account_status(call, iscsi_account_delete(call->req.text[ADM_T_USER]));
}

enum adm_status account_tie_check(struct adm_call *call)
{
	const char *iqn = call->req.text[ADM_T_INITIATOR];

	if (!iqn)
		return ADM_OK;
	if (!call->req.has_tid || call->req.outgoing)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "an incoming account of a target is tied to initiator names");
	if (!iscsi_account_name_valid(iqn))
		return admin_refuse(call, ADM_INVALID_REQUEST, "'%s' is no initiator name", iqn);
	return ADM_OK;
}

static enum adm_status account_bind_or_not(struct adm_call *call, bool bind)
{
	struct adm_target *t = call_target(call);
	const char *user = call->req.text[ADM_T_USER], *iqn = call->req.text[ADM_T_INITIATOR];

	if (!user)
		return admin_refuse(call, ADM_INVALID_REQUEST, "which user?");
	if (account_tie_check(call) != ADM_OK)
		return ADM_INVALID_REQUEST;
	if (call->req.has_tid && !t)
		return ADM_NO_TARGET;
	if (call_waits(call, t))
		return ADM_PENDING;
	struct scsi_target *scsi = t ? t->scsi : NULL;

	if (iqn)
		return account_status(call, bind ? iscsi_account_tie(scsi, user, iqn) :
						   iscsi_account_untie(scsi, user, iqn));
	return account_status(call, bind ? iscsi_account_bind(scsi, user, call->req.outgoing) :
					   iscsi_account_unbind(scsi, user, call->req.outgoing));
}

enum adm_status verb_account_bind(struct adm_call *call)
{
	return account_bind_or_not(call, true);
}

enum adm_status verb_account_unbind(struct adm_call *call)
{
	return account_bind_or_not(call, false);
}

/* With a user and a password: shows the user if that is the password. */
enum adm_status verb_account_show(struct adm_call *call)
{
	const char *user = call->req.text[ADM_T_USER], *password = call->req.text[ADM_T_PASSWORD];

	if (call->req.json)
		return user && password ?
			       admin_refuse(call, ADM_INVALID_REQUEST,
					    "whether a password is right is not said as JSON") :
			       json_accounts(call);
	if (user && password) {
		if (iscsi_account_check(user, password))
			out_printf(&call->out, "Account list:\n    %s\n", user);
		return ADM_OK;
	}
	show_accounts(call);
	return ADM_OK;
}
